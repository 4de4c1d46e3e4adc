// Parts of split lists: where attention kernels leave them, and the kernel that joins them.
#pragma once

#include "attention/problem.hpp"
#include "attention/schedule.hpp"
#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

/// Where parts of split lists go: out `[T, H, S, 512]` f32 normalised, lse and maximum `[T, H, S]`, number of parts
/// that hold a result `[T]`.
struct Partials {
  float* out = nullptr;
  float* lse = nullptr;
  float* max_logits = nullptr;
  std::int32_t* counts = nullptr;
};

/// Scratch that a plan with more than one part needs, and where its parts lie in there.
std::size_t workspace_bytes_for_parts(const AttentionPlan& plan);
Partials place_parts(const AttentionPlan& plan, Workspace workspace);

/// Joins the parts, then sink, lse, maximum and epilogue of the call. Enqueued behind the attention kernel.
void merge_parts(const AttentionProblem& problem, int splits, const Partials& partials, Stream stream);

}  // namespace raggedmla::gpu
