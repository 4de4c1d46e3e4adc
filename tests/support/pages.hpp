// Cache pages for tests: any rows per page and any stride, poison in the padding.
#pragma once

#include "raggedmla/kv_cache.hpp"
#include "support/tensor.hpp"

namespace raggedmla::test {

inline constexpr std::int64_t row_width = v4_row.query_width;

/// What a page looks like. `stride` is in bytes (fp8) or elements (bf16 rows), 0 = packed.
struct PageLayout {
  int rows_per_page = 64;
  std::int64_t stride = 0;
};

struct Fp8Pages {
  Fp8Pages(std::int64_t pages, PageLayout layout, Fp8Encoding encoding_)
      : memory(DataType::u8, {pages, 584 * layout.rows_per_page},
               {layout.stride > 0 ? layout.stride : 584 * layout.rows_per_page, 1}),
        rows_per_page(layout.rows_per_page),
        encoding(encoding_) {}

  PagedKv cache() const { return {memory, rows_per_page, encoding}; }
  std::int64_t rows() const { return memory.view().shape[0] * rows_per_page; }

  /// Bytes of a row and of its scale record, by the drawing in docs/formats.md.
  std::uint8_t* data(std::int64_t slot) const { return page(slot) + slot % rows_per_page * 576; }
  std::uint8_t* scales(std::int64_t slot) const { return page(slot) + rows_per_page * 576 + slot % rows_per_page * 8; }

  Tensor memory;
  int rows_per_page;
  Fp8Encoding encoding;

 private:
  std::uint8_t* page(std::int64_t slot) const {
    return static_cast<std::uint8_t*>(memory.view().data) + slot / rows_per_page * memory.view().stride[0];
  }
};

}  // namespace raggedmla::test
