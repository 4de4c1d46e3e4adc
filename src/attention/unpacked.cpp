#include "attention/unpacked.hpp"

#include <algorithm>

namespace raggedmla::gpu {

namespace {

constexpr std::int64_t row_bytes = std::int64_t{2} * v4_row.query_width;
/// More than this is not asked of a caller: such sources are read where they lie.
constexpr std::int64_t most_bytes = std::int64_t{512} << 20;

bool is_fp8(const SegmentProblem& segment) { return segment.store.kind != StoreKind::bf16; }

bool has_table(const RowList& list) { return list.kind == ListKind::range && list.table.entries; }

/// Rows that the segment's queries can reach. At most 2^40: nothing below overflows.
std::int64_t reachable_rows(const SegmentProblem& segment) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  const RowList& list = segment.list;
  if (!has_table(list)) return std::min(segment.store.rows, most);
  if (list.requests == 0 || list.table.columns == 0) return 0;
  const std::int64_t pages = std::min(list.table.columns, most / list.requests) * list.requests;
  return std::min(pages, most / list.table.rows_per_page) * list.table.rows_per_page;
}

/// Lists name rows anywhere: of sources that do not fit the L2 cache bf16 rows come no faster than the fp8 rows do.
constexpr std::int64_t most_listed_rows = std::int64_t{128} << 10;

/// Whether the rows are read so often that unpacking them pays; from measurements on an H200, docs/kernels-hopper.md.
bool pays(const AttentionProblem& problem, const SegmentProblem& segment, std::int64_t rows) {
  const RowList& list = segment.list;
  if (list.kind == ListKind::range) {
    // How many rows a query reads is not known. Of a table only what queries read is unpacked.
    return has_table(list) ? problem.tokens >= 16 * list.requests : problem.tokens * 16 >= rows;
  }
  const std::int64_t entries =
      list.kind == ListKind::dense ? problem.tokens * std::min(list.capacity, rows) : list.capacity;
  return rows <= most_listed_rows && entries >= 8 * rows;
}

}  // namespace

UnpackPlan plan_unpacking(const AttentionProblem& problem, const Schedule& schedule, bool pays_only) {
  UnpackPlan plan;
  if (schedule.splits > 1 || schedule.batch_invariant) return {};  // whether it pays depends on the batch
  std::int64_t end = 0;
  const auto take = [&end](std::int64_t bytes) {
    const std::int64_t begin = end;
    end += (bytes + 255) / 256 * 256;
    return static_cast<std::size_t>(begin);
  };
  for (int s = 0; s < problem.segment_count; ++s) {
    const SegmentProblem& segment = problem.segments[s];
    if (!is_fp8(segment)) continue;
    const std::int64_t rows = reachable_rows(segment);
    if (rows * row_bytes > most_bytes || (pays_only && !pays(problem, segment, rows))) return {};
    UnpackPlan::Part& part = plan.parts[s];
    part.rows = rows;
    part.rows_at = take(rows * row_bytes);
    if (has_table(segment.list)) {
      const std::int64_t pages = rows / segment.list.table.rows_per_page;
      part.table_at = take((pages + segment.list.requests) * std::int64_t{sizeof(std::int32_t)});
    }
  }
  if (end > most_bytes) return {};
  plan.bytes = static_cast<std::size_t>(end);
  return plan;
}

AttentionProblem unpacked(const AttentionProblem& problem, const UnpackPlan& plan, std::byte* scratch) {
  AttentionProblem result = problem;
  for (int s = 0; s < problem.segment_count; ++s) {
    if (!is_fp8(problem.segments[s])) continue;
    const UnpackPlan::Part& part = plan.parts[s];
    auto& [store, list] = result.segments[s];
    const std::int32_t rows_per_page = has_table(list) ? list.table.rows_per_page : 1;
    store = {reinterpret_cast<std::uint8_t*>(scratch + part.rows_at),
             rows_per_page * row_bytes,
             row_bytes,
             part.rows,
             rows_per_page,
             StoreKind::bf16};
    if (!has_table(list)) continue;
    list.table.entries = {scratch + part.table_at, list.table.columns, 1, false};
    list.table.pages = part.rows / rows_per_page;
    list.table.in_order = reinterpret_cast<const std::int32_t*>(scratch + part.table_at) + list.table.pages;
  }
  return result;
}

}  // namespace raggedmla::gpu
