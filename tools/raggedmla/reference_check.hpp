// Comparison of a finished run with the fp64 reference.
#pragma once

#include "attention_run.hpp"

namespace raggedmla::cli {

struct ReferenceCheck {
  io::Comparison comparison;
  std::int64_t queries_checked = 0;
  std::int64_t queries = 0;
};

/// Computes evenly spaced queries again by reference and compares their rows: all of them, or with `most_queries` > 0
/// at most that many. `most_queries` = 0 takes as many as a few seconds allow.
ReferenceCheck check_against_reference(const AttentionRun& run, std::int64_t most_queries);

}  // namespace raggedmla::cli
