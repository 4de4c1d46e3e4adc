#include "attention/schedule.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace raggedmla::gpu {

namespace {

constexpr std::size_t most_scratch = std::size_t{256} << 20;
constexpr std::int64_t most_splits = 128;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A table of shapes with the shared memory of each, laid out at compile time: a plan is made in every call.
struct TileTable {
  std::span<const TileShape> shapes;
  std::span<const int> bytes;
};
template <std::size_t n>
constexpr std::array<int, n> bytes_of(const TileShape (&shapes)[n]) {
  std::array<int, n> bytes{};
  for (std::size_t i = 0; i < n; ++i) bytes[i] = layout_of(shapes[i]).bytes;
  return bytes;
}
constexpr auto cuda_bytes = bytes_of(cuda_tiles);
constexpr auto cdna_bytes = bytes_of(cdna_tiles);

/// The driver keeps 1 KiB of every block's shared memory.
int resident_blocks(const TileShape& tile, int bytes, const DeviceLimits& device) {
  return std::clamp(device.shared_bytes_per_multiprocessor / (bytes + 1024), 1, tile.blocks_per_multiprocessor);
}

/// The first shape of the smallest head tile that holds all heads (or the largest there is) and fits the device.
int choose_tile(const TileTable& table, std::int64_t heads, const DeviceLimits& device) {
  const auto& tiles = table.shapes;
  const auto fits = [&](int i, int blocks) {
    return table.bytes[i] <= device.shared_bytes_per_block &&
           blocks * (table.bytes[i] + 1024) <= device.shared_bytes_per_multiprocessor;
  };
  // Preferably with as many blocks on a multiprocessor as the shape is made for.
  int found = -1;
  for (const bool demanding : {true, false}) {
    for (int i = 0; i < static_cast<int>(tiles.size()); ++i) {
      const TileShape& tile = tiles[i];
      if (!fits(i, demanding ? tile.blocks_per_multiprocessor : 1)) continue;
      const bool holds = tile.heads >= heads;
      if (found < 0) {
        found = i;
      } else {
        const TileShape& best = tiles[found];
        if (best.heads < heads ? tile.heads > best.heads : holds && tile.heads < best.heads) found = i;
      }
    }
  }
  return found < 0 ? 0 : found;
}

/// Entries that a query's lists can hold together, from shapes alone.
std::int64_t longest_list(const AttentionProblem& problem) {
  std::int64_t sum = 0;
  for (int s = 0; s < problem.segment_count; ++s) {
    const auto& [store, list] = problem.segments[s];
    std::int64_t entries = list.capacity;
    if (list.kind == ListKind::range) {
      entries = list.ring_rows > 0 ? list.ring_rows
                                   : (list.table.entries ? list.table.columns * list.table.rows_per_page : store.rows);
    }
    sum += std::min(entries, std::int64_t{1} << 40);
  }
  return sum;
}

std::size_t scratch_bytes(std::int64_t tokens, std::int64_t heads, std::int64_t splits) {
  return static_cast<std::size_t>(tokens * heads * splits) * (512 + 2) * 4;
}

/// Entries that a query's lists hold together if all are filled alike: what the plan assumes, for the device alone
/// knows the lengths. A buffer of ragged lists is shared by all queries.
std::int64_t usual_list(const AttentionProblem& problem) {
  std::int64_t sum = longest_list(problem);
  for (int s = 0; s < problem.segment_count; ++s) {
    const RowList& list = problem.segments[s].list;
    if (list.kind == ListKind::ragged) sum -= list.capacity - ceil_divide(list.capacity, problem.tokens);
  }
  return std::clamp<std::int64_t>(sum, 1, 2048);
}

/// What `splits` parts cost, in percent of the time that a lone block takes for a row; measured on an H200. Blocks that
/// share a multiprocessor slow each other down.
std::int64_t cost_of(const AttentionProblem& problem, const AttentionPlan& plan, std::int64_t rows, std::int64_t splits,
                     std::int64_t resident, const DeviceLimits& device) {
  constexpr std::int64_t start = 15000, later_start = 7500, merge = 1600;
  constexpr std::int64_t row_of[] = {0, 100, 144, 195};  // by blocks on a multiprocessor
  const std::int64_t blocks = ceil_divide(problem.tokens * plan.head_groups * splits, device.multiprocessors);
  const std::int64_t waves = ceil_divide(blocks, resident), last = blocks - (waves - 1) * resident;
  return start + (waves - 1) * (later_start + rows * row_of[resident]) + rows * row_of[last] + (splits > 1 ? merge : 0);
}

/// The number of parts with the least estimated time.
int choose_splits(const AttentionProblem& problem, const AttentionPlan& plan, int bytes, const DeviceLimits& device) {
  const std::int64_t units = problem.tokens * plan.head_groups;
  const std::int64_t resident = resident_blocks(plan.shape, bytes, device);
  const std::int64_t slots = std::int64_t{device.multiprocessors} * resident;
  const std::int64_t usual = usual_list(problem);
  const std::int64_t most = std::min(most_splits, ceil_divide(usual, shortest_part));  // more make no part shorter
  std::int64_t best = 1, best_cost = 0;
  for (std::int64_t splits = 1; splits <= most; ++splits) {
    if (splits > 1 && (splits - 1) * units >= 2 * slots) break;
    if (splits > 1 && scratch_bytes(problem.tokens, problem.heads, splits) > most_scratch) break;
    const std::int64_t rows = std::min(usual, part_length(usual, splits, plan.shape.rows));
    const std::int64_t cost = cost_of(problem, plan, rows, splits, resident, device);
    if (splits == 1 || cost < best_cost) {
      best = splits;
      best_cost = cost;
    }
  }
  return static_cast<int>(best);
}

}  // namespace

AttentionPlan plan_attention(const AttentionProblem& problem, const Schedule& schedule, const DeviceLimits& device) {
  const TileTable table = device.lanes == 64 ? TileTable{cdna_tiles, cdna_bytes} : TileTable{cuda_tiles, cuda_bytes};
  AttentionPlan plan;
  plan.tile = choose_tile(table, problem.heads, device);
  plan.shape = table.shapes[static_cast<std::size_t>(plan.tile)];
  plan.head_groups = ceil_divide(problem.heads, plan.shape.heads);
  if (problem.tokens == 0 || problem.heads == 0) return plan;

  // A row's bits depend on how its list is cut, and the cut on the batch size: batch_invariant cuts nothing unless the
  // caller fixes the number of parts.
  if (schedule.splits > 0) {
    plan.splits = static_cast<int>(std::min<std::int64_t>(schedule.splits, most_splits));
  } else if (!schedule.batch_invariant) {
    plan.splits = choose_splits(problem, plan, table.bytes[static_cast<std::size_t>(plan.tile)], device);
  }
  plan.blocks = problem.tokens * plan.head_groups * plan.splits;
  if (plan.splits > 1) {
    const std::size_t rows = static_cast<std::size_t>(problem.tokens * problem.heads * plan.splits);
    const auto take = [&plan](std::size_t bytes) {
      const std::size_t begin = plan.scratch_bytes;
      plan.scratch_bytes += (bytes + 255) / 256 * 256;
      return begin;
    };
    plan.partial_out = take(rows * v4_row.value_width * sizeof(float));
    plan.partial_lse = take(rows * sizeof(float));
    plan.partial_max = take(rows * sizeof(float));
    plan.part_counts = take(static_cast<std::size_t>(problem.tokens) * sizeof(std::int32_t));
  }
  return plan;
}

}  // namespace raggedmla::gpu
