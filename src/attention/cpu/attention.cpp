// The CPU backend of attention.
#include "attention/backends.hpp"

namespace raggedmla::cpu {

std::size_t attention_workspace_bytes(const AttentionProblem&) { return 0; }

void attention(const AttentionProblem& problem, const Schedule&, Workspace) { reference::attention(problem); }

void merge_states(const MergeProblem& problem) { reference::merge_states(problem); }

}  // namespace raggedmla::cpu
