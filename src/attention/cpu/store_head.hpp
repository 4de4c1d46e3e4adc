// The last step of attention and of merge_states on a CPU: a head's weighted sum becomes its output and its lse.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "attention/cpu/tile_kernel.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla::cpu {

/// `out` = sum_i exp(z_i - maximum) V_i and `sum` = sum_i exp(z_i - maximum); the sink joins the denominator here. No
/// row: sum = 0, and `out` holds zeros. A NaN score leaves maximum as it was, but not sum.
template <class Problem>
void store_head(const Problem& problem, const TileKernel& kernel, std::int64_t t, std::int64_t h, const float* out,
                float maximum, float sum) {
  const bool empty = sum == 0;
  const float sink = problem.sink ? std::exp(problem.sink[h * problem.sink_stride] - maximum) : 0.0f;
  const std::int64_t offset = t * problem.out_stride_token + h * problem.out_stride_head;
  void* target = static_cast<char*>(problem.out) + offset * (problem.out_is_f32 ? 4 : 2);
  kernel.store(target, problem.out_is_f32, out, empty ? 0.0f : 1.0f / (sum + sink), v4_row.value_width);
  if (problem.lse) {
    problem.lse[t * problem.lse_stride_token + h * problem.lse_stride_head] =
        empty ? -std::numeric_limits<float>::infinity() : maximum + std::log(sum);
  }
}

}  // namespace raggedmla::cpu
