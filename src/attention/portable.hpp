// The GPU kernel of attention that runs everywhere. See portable.cu.
#pragma once

#include <cstddef>

#include "attention/problem.hpp"
#include "attention/schedule.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla::gpu::portable {

/// How the call is cut on this device; Hopper kernels for the same cut ask, too.
AttentionPlan plan(const AttentionProblem& problem, const Schedule& schedule, int device);

std::size_t workspace_bytes(const AttentionProblem& problem, const Schedule& schedule, int device);
void attention(const AttentionProblem& problem, const Schedule& schedule, int device, Workspace workspace,
               Stream stream);

}  // namespace raggedmla::gpu::portable
