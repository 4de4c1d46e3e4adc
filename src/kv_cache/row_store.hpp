// Where a cache row lies: one type for flat and paged sources. A flat source is pages of one row each.
#pragma once

#include <cstdint>

#include "base/array_view.hpp"
#include "base/host_device.hpp"

namespace raggedmla {

enum class StoreKind : std::uint8_t { bf16, fp8_ocp, fp8_fnuz };

struct RowStore {
  std::uint8_t* data = nullptr;
  std::int64_t page_stride = 0;  // bytes
  std::int64_t row_stride = 0;   // bytes within a page: 576 for fp8_ds_mla, the row pitch for bf16
  std::int64_t rows = 0;         // pages * rows_per_page; valid slots are [0, rows)
  std::int32_t rows_per_page = 1;
  StoreKind kind = StoreKind::bf16;

  RAGGEDMLA_HOST_DEVICE bool holds(std::int64_t slot) const { return slot >= 0 && slot < rows; }
  RAGGEDMLA_HOST_DEVICE std::uint8_t* row(std::int64_t slot) const {
    const std::int64_t page = page_of(slot);
    return data + page * page_stride + (slot - page * rows_per_page) * row_stride;
  }
  /// The 8-byte scale record of an fp8 row: all records of a page stand behind all of its rows.
  RAGGEDMLA_HOST_DEVICE std::uint8_t* scales(std::int64_t slot) const {
    const std::int64_t page = page_of(slot);
    return data + page * page_stride + rows_per_page * row_stride + (slot - page * rows_per_page) * 8;
  }

 private:
  /// A 64-bit division costs a GPU some eighty instructions, a 32-bit one twenty.
  RAGGEDMLA_HOST_DEVICE std::int64_t page_of(std::int64_t slot) const {
    if (rows_per_page == 1) return slot;
    if (static_cast<std::uint64_t>(slot) <= 0xFFFFFFFFu) {
      return static_cast<std::uint32_t>(slot) / static_cast<std::uint32_t>(rows_per_page);
    }
    return slot / rows_per_page;
  }
};

/// A request's block table: logical row -> slot, -1 where the table holds nothing.
struct BlockTable {
  IntArray entries;  // [requests, columns]
  std::int64_t requests = 0;
  std::int64_t columns = 0;
  std::int32_t rows_per_page = 1;
  std::int64_t pages = 0;  // of the cache: entries are in [0, pages)
  // Given if entry (b, c) is b * columns + c wherever there is a page, and rows are packed. [requests], non-zero where
  // no page is missing that a query of the request reads: its rows lie behind each other.
  const std::int32_t* in_order = nullptr;

  /// The table's entry for a logical row, unchecked, -1 where the table has no such column.
  RAGGEDMLA_HOST_DEVICE std::int64_t page(std::int64_t request, std::int64_t row) const {
    if (request < 0 || request >= requests || row < 0) return -1;
    // A 64-bit division costs a GPU some eighty instructions, a 32-bit one twenty; no context has 2^32 rows.
    if (row > 0xFFFFFFFF) return -1;
    const std::uint32_t column = static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(rows_per_page);
    return column < columns ? entries(request, column) : -1;
  }
  /// The slot of a logical row (at most 2^32) whose table entry is `page`.
  RAGGEDMLA_HOST_DEVICE std::int64_t slot_in_page(std::int64_t page, std::int64_t row) const {
    if (page < 0 || page >= pages) return -1;
    return page * rows_per_page + static_cast<std::uint32_t>(row) % static_cast<std::uint32_t>(rows_per_page);
  }
  RAGGEDMLA_HOST_DEVICE std::int64_t slot(std::int64_t request, std::int64_t row) const {
    return slot_in_page(page(request, row), row);
  }
};

}  // namespace raggedmla
