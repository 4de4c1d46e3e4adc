#include "kv_cache/flatten.hpp"

namespace raggedmla {

namespace {

constexpr std::int64_t row_channels = v4_row.query_width;
constexpr std::int64_t fp8_row_bytes = v4_row.data_bytes + v4_row.scale_bytes;
constexpr std::size_t row_alignment = 16;

RowStore flat_rows(Checker& checker, const DenseKv& source) {
  const TensorView& rows = source.rows;
  checker.tensor("rows", rows, {DataType::bf16}, {any_size, row_channels});
  checker.packed_rows("rows", rows);
  checker.aligned_rows("rows", rows, row_alignment);
  const std::int64_t pitch = rows.stride[0] * 2;
  return {static_cast<std::uint8_t*>(rows.data), pitch, pitch, rows.shape[0], 1, StoreKind::bf16};
}

RowStore bf16_pages(Checker& checker, const PagedKv& source) {
  const TensorView& pages = source.pages;
  checker.tensor("pages", pages, {DataType::bf16}, {any_size, source.rows_per_page, row_channels});
  checker.packed_rows("pages", pages);
  checker.aligned_rows("pages", pages, row_alignment);
  return {static_cast<std::uint8_t*>(pages.data), pages.stride[0] * 2,  pages.stride[1] * 2,
          pages.shape[0] * source.rows_per_page,  source.rows_per_page, StoreKind::bf16};
}

RowStore fp8_pages(Checker& checker, const PagedKv& source) {
  const TensorView& pages = source.pages;
  const std::int64_t payload = fp8_row_bytes * source.rows_per_page;
  if (pages.rank == 3) {
    // Rows of 584 bytes are how engines declare a page; only the page stride is real (data first, then scales).
    checker.tensor("pages", pages, {DataType::u8}, {any_size, source.rows_per_page, fp8_row_bytes});
  } else {
    checker.tensor("pages", pages, {DataType::u8}, {any_size, any_size});
    if (pages.shape[1] < payload) {
      checker.fail("pages", "has shape " + shape_text(pages) + ", expected at least " + std::to_string(payload) +
                                " bytes a page (" + std::to_string(source.rows_per_page) + " rows of 584)");
    }
    checker.packed_rows("pages", pages);
  }
  const TensorView starts = [&] {
    TensorView view = pages;  // only the starts of pages must be aligned
    view.rank = 2;
    view.stride[1] = 1;
    return view;
  }();
  checker.aligned_rows("pages", starts, row_alignment);
  if (pages.shape[0] > 1 && pages.stride[0] < payload) {
    checker.fail("pages", "has a page stride of " + std::to_string(pages.stride[0]) + " bytes, expected at least " +
                              std::to_string(payload));
  }
  return {static_cast<std::uint8_t*>(pages.data),
          pages.stride[0],
          v4_row.data_bytes,
          pages.shape[0] * source.rows_per_page,
          source.rows_per_page,
          source.encoding == Fp8Encoding::ocp ? StoreKind::fp8_ocp : StoreKind::fp8_fnuz};
}

RowStore paged_rows(Checker& checker, const PagedKv& source) {
  if (source.rows_per_page < 1) {
    checker.fail("rows_per_page", "is " + std::to_string(source.rows_per_page) + ", expected at least 1");
  }
  if (source.pages.dtype == DataType::bf16) return bf16_pages(checker, source);
  if (source.pages.dtype == DataType::u8) return fp8_pages(checker, source);
  checker.fail("pages", std::string("is ") + name(source.pages.dtype) + ", expected u8 (fp8_ds_mla) or bf16");
}

}  // namespace

RowStore flatten_source(Checker& checker, const char* argument, const KvSource& source) {
  const Checker::Scope scope = checker.within(argument);
  if (const DenseKv* rows = std::get_if<DenseKv>(&source)) return flat_rows(checker, *rows);
  return paged_rows(checker, std::get<PagedKv>(source));
}

RowStore flatten_pages(Checker& checker, const char* argument, const PagedKv& source) {
  const Checker::Scope scope = checker.within(argument);
  return paged_rows(checker, source);
}

}  // namespace raggedmla
