// Calls over fp8 pages as calls over bf16 rows: where queries read the same rows often, all rows that they can reach
// are unpacked once, ahead of the attention, into the workspace. Which calls, and where everything goes: pure functions
// of shapes, tested without a GPU. The kernels are in sm90/unpack.cu.
//
//     list or flat range    all rows of the source, by slot: the lists stay as they are
//     range over a table    [requests, columns] pages, as the table has them, and a table of them: entry (b, c) is
//                           b * columns + c, or -1 where no page is or no query of the request reads it
//
// In such an order the rows of a request lie behind each other, and a range of them is a range of flat rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/problem.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla::gpu {

struct UnpackPlan {
  struct Part {
    std::int64_t rows = 0;                  // to be unpacked
    std::size_t rows_at = 0, table_at = 0;  // in the scratch
  };
  Part parts[AttentionProblem::max_segments];
  std::size_t bytes = 0;  // of scratch; 0: the call stays as it is
};

/// `pays_only`: only if the rows are read so often that it pays.
UnpackPlan plan_unpacking(const AttentionProblem& problem, const Schedule& schedule, bool pays_only);

/// The call over what `plan` unpacks to `scratch` (256-byte aligned).
AttentionProblem unpacked(const AttentionProblem& problem, const UnpackPlan& plan, std::byte* scratch);

}  // namespace raggedmla::gpu
