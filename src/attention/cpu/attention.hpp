// The CPU backend with its choices made explicit: for tests of every instruction set and thread count.
#pragma once

#include "attention/cpu/plan.hpp"
#include "attention/cpu/tile_kernel.hpp"

namespace raggedmla::cpu {

std::size_t attention_workspace_bytes(const TileKernel& kernel, const Plan& plan);
void attention(const TileKernel& kernel, const Plan& plan, const AttentionProblem& problem, Workspace workspace);

}  // namespace raggedmla::cpu
