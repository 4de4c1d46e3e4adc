// An attention call, checked and flattened: what backends take. Tools count a call's selected rows with it.
#pragma once

#include "attention/problem.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla {

/// Throws Error exactly as attention() does for the same arguments.
AttentionProblem flatten_attention(const Attention& arguments);

}  // namespace raggedmla
