#include "attention/cpu/plan.hpp"

#include <algorithm>

#include "attention/cpu/tile_kernel.hpp"

namespace raggedmla::cpu {

namespace {

constexpr int most_splits = 64;
constexpr std::int64_t entries_worth_a_split = 4 * tile_rows;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Share of the threads' time that is work when units of equal size are dealt out.
double balance(std::int64_t units, int threads) {
  return static_cast<double>(units) / static_cast<double>(divide_up(units, threads) * threads);
}

/// The most entries that a query's lists can have, by their shapes.
std::int64_t longest_list(const AttentionProblem& problem) {
  std::int64_t entries = 0;
  for (int s = 0; s < problem.segment_count; ++s) {
    const auto& [store, list] = problem.segments[s];
    if (list.kind != ListKind::range) entries += list.capacity;
    else entries += list.ring_rows > 0 ? list.ring_rows : store.rows;
  }
  return entries;
}

}  // namespace

Plan plan(const AttentionProblem& problem, const Schedule& schedule, int threads, int head_block) {
  Plan plan;
  plan.threads = std::max(threads, 1);
  plan.tokens = problem.tokens;
  plan.heads = problem.heads;
  if (problem.tokens == 0 || problem.heads == 0) return plan;

  // The largest groups that keep the threads at least this busy, else those that keep them busiest.
  constexpr double busy_enough = 0.85;
  const std::int64_t blocks = divide_up(problem.heads, head_block);
  const std::int64_t most_blocks = most_heads / head_block;
  double best = 0;
  for (std::int64_t groups = divide_up(blocks, most_blocks); groups <= blocks; ++groups) {
    const std::int64_t group_blocks = divide_up(blocks, groups);
    const std::int64_t used = divide_up(blocks, group_blocks);
    const double balanced = balance(problem.tokens * used, plan.threads);
    if (balanced <= best) continue;
    best = balanced;
    plan.group_heads = static_cast<int>(std::min(group_blocks * head_block, problem.heads));
    plan.groups = used;
    if (balanced >= busy_enough) break;
  }

  if (schedule.splits > 0) {
    plan.splits = std::min(schedule.splits, most_splits);
  } else if (!schedule.batch_invariant && problem.tokens * plan.groups < plan.threads) {
    const std::int64_t wanted = divide_up(plan.threads, problem.tokens * plan.groups);
    const std::int64_t worthwhile = std::max<std::int64_t>(1, longest_list(problem) / entries_worth_a_split);
    plan.splits = static_cast<int>(std::min({wanted, worthwhile, std::int64_t{most_splits}}));
  }
  return plan;
}

}  // namespace raggedmla::cpu
