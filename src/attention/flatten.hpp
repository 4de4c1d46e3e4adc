// The attention calls of the public API, checked and turned into what backends take.
#pragma once

#include "attention/problem.hpp"
#include "base/checks.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla {

AttentionProblem flatten(Checker& checker, const Attention& arguments);
MergeProblem flatten(Checker& checker, const MergeStates& arguments);

/// For tools that count a call's selected rows: throws Error exactly as attention() does for the same arguments.
AttentionProblem flatten_attention(const Attention& arguments);

}  // namespace raggedmla
