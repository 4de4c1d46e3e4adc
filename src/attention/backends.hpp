// The backends of attention, one declaration each. api.cpp checks the call and picks one; no backend knows another.
#pragma once

#include <cstddef>

#include "attention/problem.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla {

namespace reference {
void attention(const AttentionProblem& problem);
void merge_states(const MergeProblem& problem);
}  // namespace reference

namespace cpu {
std::size_t attention_workspace_bytes(const AttentionProblem& problem, const Schedule& schedule);
void attention(const AttentionProblem& problem, const Schedule& schedule, Workspace workspace);
void merge_states(const MergeProblem& problem);
}  // namespace cpu

namespace gpu {
std::size_t attention_workspace_bytes(const AttentionProblem& problem, const Schedule& schedule, int device);
void attention(const AttentionProblem& problem, const Schedule& schedule, int device, Workspace workspace,
               Stream stream);
void merge_states(const MergeProblem& problem, int device, Stream stream);
}  // namespace gpu

}  // namespace raggedmla
