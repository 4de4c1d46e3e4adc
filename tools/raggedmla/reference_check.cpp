#include "reference_check.hpp"

#include <algorithm>

#include "progress.hpp"

namespace raggedmla::cli {
namespace {

/// Floating-point work that reference does in a few seconds on one core.
constexpr double affordable_flops = 8e9;

std::int64_t queries_to_check(const Work& work, std::int64_t most_queries) {
  if (most_queries > 0) return std::min(most_queries, work.queries);
  const double per_query = work.flops / static_cast<double>(std::max<std::int64_t>(work.queries, 1));
  if (work.flops <= affordable_flops) return work.queries;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(affordable_flops / per_query), 2, work.queries);
}

}  // namespace

ReferenceCheck check_against_reference(const AttentionRun& run, std::int64_t most_queries) {
  const Work& work = run.work();
  ReferenceCheck check;
  check.queries = work.queries;
  check.queries_checked = queries_to_check(work, most_queries);
  Progress progress("reference", check.queries_checked);
  for (std::int64_t i = 0; i < check.queries_checked; ++i) {
    // The first and the last query are among them.
    const std::int64_t t = check.queries_checked == 1 ? 0 : i * (work.queries - 1) / (check.queries_checked - 1);
    io::TensorSet storage("reference");
    io::AttentionCall part = io::slice_query(run.host_call(), t, storage);
    const io::AttentionResult actual{part.arguments.out, part.arguments.lse, part.arguments.max_logits};
    part.arguments.out = storage.add("out", DataType::f32, {1, work.heads, v4_row.value_width});
    part.arguments.lse = storage.add("lse", DataType::f32, {1, work.heads});
    part.arguments.max_logits = storage.add("max_logits", DataType::f32, {1, work.heads});
    part.arguments.schedule = {};
    part.arguments.schedule.kernel = Schedule::Kernel::reference;
    attention(part.arguments);
    check.comparison.add(actual, {part.arguments.out, part.arguments.lse, part.arguments.max_logits}, t);
    progress.advance();
  }
  return check;
}

}  // namespace raggedmla::cli
