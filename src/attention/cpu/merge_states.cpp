// Partial results over disjoint rows, joined on a CPU: memory-bound, one head at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/backends.hpp"
#include "attention/cpu/instruction_sets.hpp"
#include "attention/cpu/store_head.hpp"
#include "base/bfloat16.hpp"

namespace raggedmla::cpu {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int value_width = v4_row.value_width;

void add_weighted(float* sum, float weight, const MergeProblem& problem, std::int64_t offset) {
  if (problem.partial_is_f32) {
    const float* part = static_cast<const float*>(problem.partial_out) + offset;
    for (int c = 0; c < value_width; ++c) sum[c] += weight * part[c];
  } else {
    const std::uint16_t* part = static_cast<const std::uint16_t*>(problem.partial_out) + offset;
    for (int c = 0; c < value_width; ++c) sum[c] += weight * float_from_bf16(part[c]);
  }
}

void merge_head(const MergeProblem& problem, const TileKernel& kernel, std::int64_t t, std::int64_t h) {
  const auto part_lse = [&](std::int64_t s) {
    return problem.partial_lse[s * problem.partial_lse_stride_part + t * problem.partial_lse_stride_token +
                               h * problem.partial_lse_stride_head];
  };
  float maximum = -infinity, sum = 0;
  for (std::int64_t s = 0; s < problem.parts; ++s) maximum = std::max(maximum, part_lse(s));

  float out[value_width] = {};
  for (std::int64_t s = 0; s < problem.parts; ++s) {
    const float lse = part_lse(s);
    if (lse == -infinity) continue;  // an empty part's out may hold anything
    const float weight = std::exp(lse - maximum);
    sum += weight;
    add_weighted(out, weight, problem,
                 s * problem.partial_stride_part + t * problem.partial_stride_token + h * problem.partial_stride_head);
  }

  store_head(problem, kernel, t, h, out, maximum, sum);
}

}  // namespace

void merge_states(const MergeProblem& problem) {
  const TileKernel& kernel = chosen_kernel();
#pragma omp parallel for collapse(2)
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    for (std::int64_t h = 0; h < problem.heads; ++h) merge_head(problem, kernel, t, h);
  }
}

}  // namespace raggedmla::cpu
