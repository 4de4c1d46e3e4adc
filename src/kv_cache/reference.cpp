// The cache operators by their definition, in doubles and one channel at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float8.hpp"
#include "kv_cache/backends.hpp"
#include "kv_cache/row_channel.hpp"

namespace raggedmla::reference {

namespace {

constexpr int groups = v4_row.nope_width / v4_row.group_width;

void quantize_group(const std::uint8_t* channels, Fp8Encoding encoding, ScaleFloor floor, std::uint8_t* codes,
                    std::uint8_t* scale_byte) {
  double amax = 0;
  for (int i = 0; i < v4_row.group_width; ++i) amax = std::fmax(amax, std::fabs(load_bf16(channels + 2 * i)));
  const double largest = fp8_properties(encoding).writer_largest;
  const double quotient = floor == ScaleFloor::amax ? std::fmax(amax, 1e-4) / largest : std::fmax(amax / largest, 1e-4);
  const double exponent = std::fmin(std::ceil(std::log2(quotient)), 127);  // 127 only if amax is infinite
  for (int i = 0; i < v4_row.group_width; ++i) {
    const double scaled = load_bf16(channels + 2 * i) * std::exp2(-exponent);
    codes[i] = fp8_from_float(static_cast<float>(scaled), encoding);
  }
  *scale_byte = static_cast<std::uint8_t>(exponent + 127);
}

template <class Problem>
void read_rows(const Problem& problem) {
  for (std::int64_t i = 0; i < problem.tasks(); ++i) {
    const RowTask task = problem.task(i);
    if (task.out == nullptr) continue;
    for (int c = 0; c < v4_row.query_width; ++c) {
      const float value = task.slot < 0 ? 0.0f : row_channel(problem.source, task.slot, c);
      reinterpret_cast<std::uint16_t*>(task.out)[c] = bf16_from_float(value);
    }
  }
}

}  // namespace

void quantize_rows(const QuantizeProblem& problem) {
  const RowStore& cache = problem.cache;
  for (std::int64_t m = 0; m < problem.count; ++m) {
    const std::int64_t slot = problem.slots(m);
    if (!cache.holds(slot)) continue;
    const std::uint8_t* source = problem.rows + m * problem.row_stride;
    std::uint8_t* row = cache.row(slot);
    if (cache.kind == StoreKind::bf16) {
      std::memcpy(row, source, 2 * v4_row.query_width);
      continue;
    }
    const Fp8Encoding encoding = cache.kind == StoreKind::fp8_ocp ? Fp8Encoding::ocp : Fp8Encoding::fnuz;
    for (int g = 0; g < groups; ++g) {
      const int channel = g * v4_row.group_width;
      quantize_group(source + 2 * channel, encoding, problem.floor, row + channel, cache.scales(slot) + g);
    }
    cache.scales(slot)[groups] = 0;
    std::memcpy(row + v4_row.nope_width, source + 2 * v4_row.nope_width, 2 * v4_row.rope_width);
  }
}

void dequantize_rows(const DequantizeProblem& problem) { read_rows(problem); }
void gather_rows(const GatherProblem& problem) { read_rows(problem); }

}  // namespace raggedmla::reference
