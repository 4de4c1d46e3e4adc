// Attention of one query at a time on Hopper: for few heads and lists that neighbours do not share. See
// single_query.cu.
#pragma once

#include "attention/problem.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla::gpu::sm90::single_query {

/// Heads that the kernel takes: one tile of mma.m16n8k16.
inline constexpr int max_heads = 16;

/// Whether the kernel computes this call.
bool takes(const AttentionProblem& problem, const Schedule& schedule);
/// Whether it is the better one of the Hopper kernels for the lists of a call that it takes.
bool suits(const AttentionProblem& problem, const Schedule& schedule);
/// Whether it is faster than the portable kernel. `was_fp8`: which would read fp8 pages instead.
bool pays(const AttentionProblem& problem, int multiprocessors, bool was_fp8);

void attention(const AttentionProblem& problem, int device, Stream stream);

/// Loads the kernel onto the current device.
void preload();

}  // namespace raggedmla::gpu::sm90::single_query
