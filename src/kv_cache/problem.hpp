// The cache operators as backends see them: checked, flattened, small enough to be kernel parameters.
#pragma once

#include <cstdint>

#include "base/array_view.hpp"
#include "base/host_device.hpp"
#include "kv_cache/row_store.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla {

struct QuantizeProblem {
  const std::uint8_t* rows = nullptr;  // bf16
  std::int64_t row_stride = 0;         // bytes
  std::int64_t count = 0;
  IntArray slots;
  RowStore cache;
  ScaleFloor floor = ScaleFloor::amax;
};

/// One row to be read: where it goes, and the slot it comes from.
struct RowTask {
  std::int64_t slot = -1;       // < 0: the row is 0
  std::uint8_t* out = nullptr;  // bf16; null: nothing is written
};

// The operators that read differ only in how they name their rows: task(i) of source_of(i) for i in [0, tasks()).

struct DequantizeProblem {
  RowStore source;
  IntArray slots;
  std::int64_t count = 0;
  std::uint8_t* out = nullptr;
  std::int64_t out_stride = 0;  // bytes

  RAGGEDMLA_HOST_DEVICE std::int64_t tasks() const { return count; }
  RAGGEDMLA_HOST_DEVICE const RowStore& source_of(std::int64_t) const { return source; }
  RAGGEDMLA_HOST_DEVICE RowTask task(std::int64_t i) const {
    const std::int64_t slot = slots(i);
    return {source.holds(slot) ? slot : -1, out + i * out_stride};
  }
};

struct GatherProblem {
  RowStore source;
  BlockTable table;
  IntArray first, count;
  std::int64_t requests = 0;
  std::int64_t capacity = 0;    // rows of a request that the workspace has room for, behind the offset
  std::uint8_t* out = nullptr;  // of request 0, behind the offset
  std::int64_t out_stride_request = 0, out_stride_row = 0;  // bytes

  RAGGEDMLA_HOST_DEVICE std::int64_t tasks() const { return requests * capacity; }
  RAGGEDMLA_HOST_DEVICE const RowStore& source_of(std::int64_t) const { return source; }
  RAGGEDMLA_HOST_DEVICE RowTask task(std::int64_t i) const {
    const std::int64_t request = i / capacity, row = i % capacity;
    if (row >= count(request)) return {};
    constexpr std::int64_t far = std::int64_t{1} << 62;  // keeps the sum in range
    const std::int64_t slot = table.slot(request, clamp_index(first(request), -far, far) + row);
    return {source.holds(slot) ? slot : -1, out + request * out_stride_request + row * out_stride_row};
  }
};

/// Rows of a few sources of one format ahead of a call that reads them often, packed: all of a source by slot, or with
/// a block table those of its pages, request by request as the table has them.
struct UnpackProblem {
  struct Part {
    RowStore source;
    BlockTable table;
    const std::int32_t* wanted = nullptr;  // [requests, columns], with a table: < 0 where the page is left out
    std::uint8_t* out = nullptr;

    RAGGEDMLA_HOST_DEVICE std::int64_t tasks() const {
      return table.entries ? table.requests * table.columns * table.rows_per_page : source.rows;
    }
    RAGGEDMLA_HOST_DEVICE RowTask task(std::int64_t i) const {
      std::uint8_t* const row = out + i * (2 * v4_row.query_width);
      if (!table.entries) return {i, row};
      const auto page = static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(table.rows_per_page);
      const std::uint32_t request = page / static_cast<std::uint32_t>(table.columns);
      const std::int64_t entry = table.entries(request, page - request * table.columns);
      if (wanted[page] < 0) return {};  // read together with the entry
      const std::int64_t slot = table.slot_in_page(entry, i);
      return {source.holds(slot) ? slot : -1, row};
    }
  };
  static constexpr int most_parts = 4;
  Part parts[most_parts];
  int count = 0;

  void add(const Part& part) { parts[count++] = part; }

  RAGGEDMLA_HOST_DEVICE std::int64_t tasks() const {
    std::int64_t sum = 0;
    for (int p = 0; p < count; ++p) sum += parts[p].tasks();
    return sum;
  }
  /// The part of task i, which becomes the task's number there.
  RAGGEDMLA_HOST_DEVICE const Part& part_of(std::int64_t& i) const {
    int p = 0;
    for (; p + 1 < count && i >= parts[p].tasks(); ++p) i -= parts[p].tasks();
    return parts[p];
  }
  RAGGEDMLA_HOST_DEVICE RowTask task(std::int64_t i) const {
    const Part& part = part_of(i);
    return part.task(i);
  }
  RAGGEDMLA_HOST_DEVICE const RowStore& source_of(std::int64_t i) const { return part_of(i).source; }
};

}  // namespace raggedmla
