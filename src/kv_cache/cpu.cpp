// The cache operators on a CPU: rows over threads, loops over a group's 64 channels that the compiler vectorises.
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "base/float8.hpp"
#include "kv_cache/backends.hpp"
#include "kv_cache/scale.hpp"

namespace raggedmla::cpu {

namespace {

constexpr int group_width = v4_row.group_width;
constexpr int groups = v4_row.nope_width / group_width;
constexpr std::size_t row_bytes = 2 * v4_row.query_width;
constexpr std::size_t rope_bytes = 2 * v4_row.rope_width;
constexpr std::int64_t rows_worth_threads = 16;  // below that, waking them costs more

template <Fp8Encoding encoding>
void quantize_group(const std::uint16_t* channels, ScaleFloor floor, std::uint8_t* codes, std::uint8_t* scale) {
  int largest = 0;
  for (int i = 0; i < group_width; ++i) largest = std::max(largest, static_cast<int>(magnitude_bits(channels[i])));
  const int exponent = scale_exponent(static_cast<std::uint32_t>(largest), encoding, floor);
  const float factor = inverse_scale(exponent);
  for (int i = 0; i < group_width; ++i) codes[i] = fp8_from_float(float_from_bf16(channels[i]) * factor, encoding);
  *scale = scale_byte(exponent);
}

template <Fp8Encoding encoding>
void quantize_row(const std::uint8_t* source, ScaleFloor floor, std::uint8_t* row, std::uint8_t* scales) {
  const auto* channels = reinterpret_cast<const std::uint16_t*>(source);
  for (int g = 0; g < groups; ++g) {
    quantize_group<encoding>(channels + g * group_width, floor, row + g * group_width, scales + g);
  }
  scales[groups] = 0;
  std::memcpy(row + v4_row.nope_width, channels + v4_row.nope_width, rope_bytes);
}

/// A code's bits moved to `s 0000eeee mmm0...` are a float 2^120 (ocp) or 2^119 (fnuz) times too small; one product
/// with the scale finishes it (gpu/fp8.cuh explains). Wrong for NaN codes, and only exact without rounding to bf16.
template <Fp8Encoding encoding>
void dequantize_group_plain(const std::uint8_t* codes, std::uint8_t scale, std::uint16_t* out) {
  const float factor = power_of_two(scale - 127 + (encoding == Fp8Encoding::ocp ? 120 : 119));
  for (int i = 0; i < group_width; ++i) {
    const std::uint32_t code = codes[i];
    const float value = float_from_bits((code & 0x80u) << 24 | (code & 0x7Fu) << 20) * factor;
    out[i] = static_cast<std::uint16_t>(bits_of_float(value) >> 16);
  }
}

template <Fp8Encoding encoding>
void dequantize_group(const std::uint8_t* codes, std::uint8_t scale, std::uint16_t* out) {
  unsigned nan_codes = 0;
  for (int i = 0; i < group_width; ++i) nan_codes |= is_fp8_nan(codes[i], encoding);
  if (scale >= 4 && scale <= 134 && nan_codes == 0) return dequantize_group_plain<encoding>(codes, scale, out);
  for (int i = 0; i < group_width; ++i) {
    out[i] = bf16_from_float(float_from_fp8(codes[i], encoding) * float_from_ue8m0(scale));
  }
}

template <Fp8Encoding encoding>
void dequantize_row(const std::uint8_t* row, const std::uint8_t* scales, std::uint8_t* out) {
  auto* channels = reinterpret_cast<std::uint16_t*>(out);
  for (int g = 0; g < groups; ++g) {
    dequantize_group<encoding>(row + g * group_width, scales[g], channels + g * group_width);
  }
  std::memcpy(channels + v4_row.nope_width, row + v4_row.nope_width, rope_bytes);
}

template <class Problem>
void read_rows(const Problem& problem) {
  const RowStore& source = problem.source;
  const std::int64_t tasks = problem.tasks();
#pragma omp parallel for schedule(static) if (tasks >= rows_worth_threads)
  for (std::int64_t i = 0; i < tasks; ++i) {
    const RowTask task = problem.task(i);
    if (task.out == nullptr) continue;
    if (task.slot < 0) {
      std::memset(task.out, 0, row_bytes);
      continue;
    }
    const std::uint8_t* row = source.row(task.slot);
    switch (source.kind) {
      case StoreKind::bf16: std::memcpy(task.out, row, row_bytes); break;
      case StoreKind::fp8_ocp: dequantize_row<Fp8Encoding::ocp>(row, source.scales(task.slot), task.out); break;
      case StoreKind::fp8_fnuz: dequantize_row<Fp8Encoding::fnuz>(row, source.scales(task.slot), task.out); break;
    }
  }
}

void write_row(const QuantizeProblem& problem, std::int64_t m, std::int64_t slot) {
  const RowStore& cache = problem.cache;
  const std::uint8_t* source = problem.rows + m * problem.row_stride;
  std::uint8_t* row = cache.row(slot);
  switch (cache.kind) {
    case StoreKind::bf16: std::memcpy(row, source, row_bytes); break;
    case StoreKind::fp8_ocp: quantize_row<Fp8Encoding::ocp>(source, problem.floor, row, cache.scales(slot)); break;
    case StoreKind::fp8_fnuz: quantize_row<Fp8Encoding::fnuz>(source, problem.floor, row, cache.scales(slot)); break;
  }
}

}  // namespace

void quantize_rows(const QuantizeProblem& problem) {
  // A thread owns slots, not rows: of two rows for one slot, the later is stored last by the same thread. Runs of 16
  // neighbouring slots keep threads off each other's cache lines.
#pragma omp parallel if (problem.count >= rows_worth_threads)
  {
    const std::int64_t threads = omp_get_num_threads(), self = omp_get_thread_num();
    for (std::int64_t m = 0; m < problem.count; ++m) {
      const std::int64_t slot = problem.slots(m);
      if (problem.cache.holds(slot) && slot / 16 % threads == self) write_row(problem, m, slot);
    }
  }
}

void dequantize_rows(const DequantizeProblem& problem) { read_rows(problem); }
void gather_rows(const GatherProblem& problem) { read_rows(problem); }

}  // namespace raggedmla::cpu
