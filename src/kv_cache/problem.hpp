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

// dequantize_rows and gather_rows differ only in how they name their rows: task(i) for i in [0, tasks()).

struct DequantizeProblem {
  RowStore source;
  IntArray slots;
  std::int64_t count = 0;
  std::uint8_t* out = nullptr;
  std::int64_t out_stride = 0;  // bytes

  RAGGEDMLA_HOST_DEVICE std::int64_t tasks() const { return count; }
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
  RAGGEDMLA_HOST_DEVICE RowTask task(std::int64_t i) const {
    const std::int64_t request = i / capacity, row = i % capacity;
    if (row >= count(request)) return {};
    constexpr std::int64_t far = std::int64_t{1} << 62;  // keeps the sum in range
    const std::int64_t slot = table.slot(request, clamp_index(first(request), -far, far) + row);
    return {source.holds(slot) ? slot : -1, out + request * out_stride_request + row * out_stride_row};
  }
};

}  // namespace raggedmla
