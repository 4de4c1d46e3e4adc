// How a call is cut into units of work for threads, and how the scratch memory is laid out. A pure function of shapes,
// schedule and thread count.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/problem.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla::cpu {

/// A unit is a query, a group of its heads and a part of its list. Heads of a group share every gathered tile.
struct Plan {
  int threads = 1;
  std::int64_t tokens = 0, heads = 0;
  int group_heads = 0;  // of all groups but the last
  std::int64_t groups = 0;
  int splits = 1;

  std::int64_t units() const { return tokens * groups * splits; }
};

/// Groups of heads are made smaller, by blocks of `head_block`, until all threads have work; that does not change a
/// result. If even the smallest groups are too few, lists are split as well, unless the call asks for results that do
/// not depend on the batch.
Plan plan(const AttentionProblem& problem, const Schedule& schedule, int threads, int head_block);

}  // namespace raggedmla::cpu
