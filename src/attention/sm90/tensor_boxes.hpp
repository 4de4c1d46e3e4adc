// What the Hopper kernels ask of a call before they put its tensors into maps for the copy engine.
#pragma once

#include <cstdint>

#include "attention/problem.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla::gpu::sm90 {

/// Bytes between elements of a dimension; any legal number where there is one element only.
inline std::int64_t box_stride(std::int64_t size, std::int64_t bytes) {
  return size > 1 ? bytes : v4_row.query_width * 2;
}
/// Whether the copy engine takes it (it cannot repeat elements).
inline bool is_box_stride(std::int64_t bytes) { return bytes > 0 && bytes % 16 == 0 && bytes < (1ll << 40); }

inline std::int64_t q_head_stride(const AttentionProblem& problem) {
  return box_stride(problem.heads, problem.q_stride_head * 2);
}
inline std::int64_t q_token_stride(const AttentionProblem& problem) {
  return box_stride(problem.tokens, problem.q_stride_token * 2);
}
inline bool q_is_box(const AttentionProblem& problem) {
  return is_box_stride(q_head_stride(problem)) && is_box_stride(q_token_stride(problem));
}

inline std::int64_t out_head_stride(const AttentionProblem& problem) {
  return box_stride(problem.heads, problem.out_stride_head * 2);
}
inline std::int64_t out_token_stride(const AttentionProblem& problem) {
  return box_stride(problem.tokens, problem.out_stride_token * 2);
}
/// Whether the copy engine can store the output: bf16, and on 16-byte boundaries, which is asked of q but not of out.
inline bool out_is_box(const AttentionProblem& problem) {
  return !problem.out_is_f32 && reinterpret_cast<std::uintptr_t>(problem.out) % 16 == 0 &&
         is_box_stride(out_head_stride(problem)) && is_box_stride(out_token_stride(problem));
}

/// Whether all output rows start where stores of 16 bytes (bf16) or 8 (f32) may.
inline bool takes_wide_stores(const AttentionProblem& problem) {
  const std::int64_t unit = problem.out_is_f32 ? 2 : 8, bytes = problem.out_is_f32 ? 8 : 16;
  return reinterpret_cast<std::uintptr_t>(problem.out) % static_cast<std::uintptr_t>(bytes) == 0 &&
         problem.out_stride_token % unit == 0 && problem.out_stride_head % unit == 0;
}

}  // namespace raggedmla::gpu::sm90
