// The door of the cache operators: every argument is checked here, once; behind it backends trust what they get.
#include <algorithm>

#include "base/backend.hpp"
#include "base/checks.hpp"
#include "kv_cache/backends.hpp"
#include "kv_cache/flatten.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla {

namespace {

constexpr std::int64_t bf16_bytes = 2;

/// Rows of 512 bf16 channels that start on 16-byte boundaries.
void check_rows(Checker& checker, const char* argument, const TensorView& rows,
                std::initializer_list<std::int64_t> shape) {
  checker.tensor(argument, rows, {DataType::bf16}, shape);
  checker.packed_rows(argument, rows);
  checker.aligned_rows(argument, rows, 16);
}

}  // namespace

void quantize_rows(const QuantizeRows& arguments, Stream stream) {
  Checker checker("quantize_rows");
  const TensorView& rows = arguments.rows;
  check_rows(checker, "rows", rows, {any_size, v4_row.query_width});
  QuantizeProblem problem;
  problem.rows = static_cast<const std::uint8_t*>(rows.data);
  problem.row_stride = rows.stride[0] * bf16_bytes;
  problem.count = rows.shape[0];
  problem.slots = checker.integers("slots", arguments.slots, {problem.count});
  problem.cache = flatten_pages(checker, "cache", arguments.cache);
  if (problem.cache.kind == StoreKind::bf16) checker.writable("cache.pages", arguments.cache.pages);
  problem.floor = arguments.floor;

  const Device device = checker.device();
  require_backend("quantize_rows", device);
  if (problem.count == 0 || problem.cache.rows == 0) return;
  if (device.type == DeviceType::cpu) return cpu::quantize_rows(problem);
  if constexpr (with_gpu) gpu::quantize_rows(problem, device.index, stream);
}

void dequantize_rows(const DequantizeRows& arguments, Stream stream) {
  Checker checker("dequantize_rows");
  DequantizeProblem problem;
  problem.source = flatten_source(checker, "source", arguments.source);
  problem.slots = checker.integers("slots", arguments.slots, {any_size});
  problem.count = arguments.slots.shape[0];
  check_rows(checker, "out", arguments.out, {problem.count, v4_row.query_width});
  checker.writable("out", arguments.out);
  problem.out = static_cast<std::uint8_t*>(arguments.out.data);
  problem.out_stride = arguments.out.stride[0] * bf16_bytes;

  const Device device = checker.device();
  require_backend("dequantize_rows", device);
  if (problem.count == 0) return;
  if (device.type == DeviceType::cpu) return cpu::dequantize_rows(problem);
  if constexpr (with_gpu) gpu::dequantize_rows(problem, device.index, stream);
}

void gather_rows(const GatherRows& arguments, Stream stream) {
  Checker checker("gather_rows");
  GatherProblem problem;
  problem.source = flatten_pages(checker, "source", arguments.source);
  problem.table.entries = checker.integers("block_table", arguments.block_table, {any_size, any_size});
  problem.requests = arguments.block_table.shape[0];
  problem.table.requests = problem.requests;
  problem.table.columns = arguments.block_table.shape[1];
  problem.table.rows_per_page = problem.source.rows_per_page;
  problem.table.pages = problem.source.rows / problem.source.rows_per_page;
  problem.first = checker.integers("first", arguments.first, {problem.requests});
  problem.count = checker.integers("count", arguments.count, {problem.requests});
  const TensorView& out = arguments.out;
  check_rows(checker, "out", out, {problem.requests, any_size, v4_row.query_width});
  checker.writable("out", out);
  if (arguments.out_offset < 0) {
    checker.fail("out_offset", "is " + std::to_string(arguments.out_offset) + ", expected 0 or more");
  }
  const std::int64_t offset = std::min(arguments.out_offset, out.shape[1]);
  problem.capacity = out.shape[1] - offset;
  problem.out_stride_request = out.stride[0] * bf16_bytes;
  problem.out_stride_row = out.stride[1] * bf16_bytes;

  const Device device = checker.device();
  require_backend("gather_rows", device);
  if (problem.tasks() == 0) return;
  problem.out = static_cast<std::uint8_t*>(out.data) + offset * problem.out_stride_row;
  if (device.type == DeviceType::cpu) return cpu::gather_rows(problem);
  if constexpr (with_gpu) gpu::gather_rows(problem, device.index, stream);
}

}  // namespace raggedmla
