// The merge kernel as the attention kernels of the GPU call it.
#pragma once

#include "attention/problem.hpp"
#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

/// Joins the parts of split lists: out `[T, H, S, 512]` f32, lse and maximum `[T, H, S]`, of which the first counts[t]
/// of a query hold a result. Then sink, lse, maximum and epilogue of the call.
void merge_parts(const AttentionProblem& problem, int splits, const float* out, const float* lse,
                 const float* max_logits, const std::int32_t* counts, Stream stream);

}  // namespace raggedmla::gpu
