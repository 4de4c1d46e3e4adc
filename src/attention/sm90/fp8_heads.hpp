// Attention of many heads over fp8 pages on Hopper: decode without tensor parallelism. See fp8_heads.cu.
#pragma once

#include <cstddef>

#include "attention/problem.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla::gpu::sm90::fp8_heads {

/// Whether the kernel computes this call, and is the fastest that does. It cuts calls as the portable kernel does.
bool takes(const AttentionProblem& problem);

std::size_t workspace_bytes(const AttentionProblem& problem, const Schedule& schedule, int device);
void attention(const AttentionProblem& problem, const Schedule& schedule, int device, Workspace workspace,
               Stream stream);

/// Loads the kernel onto the current device.
void preload();

}  // namespace raggedmla::gpu::sm90::fp8_heads
