// The door of attention: every argument is checked here, once; behind it backends trust what they get.
#include "attention/flatten.hpp"

#include <cmath>

#include "kv_cache/flatten.hpp"

namespace raggedmla {

namespace {

/// A ring longer than this is a mistake, and rows beyond it would be visited one by one.
constexpr std::int64_t longest_ring = std::int64_t{1} << 31;

// ---- row selections ------------------------------------------------------------------------------------------------

RowList flatten_rows(Checker& checker, const RaggedRows& rows, std::int64_t tokens, const RowStore&) {
  RowList list;
  list.kind = ListKind::ragged;
  list.indices = checker.integers("indices", rows.indices, {any_size});
  list.capacity = rows.indices.shape[0];
  list.indptr = checker.integers("indptr", rows.indptr, {tokens + 1});
  return list;
}

RowList flatten_rows(Checker& checker, const DenseRows& rows, std::int64_t tokens, const RowStore&) {
  RowList list;
  list.kind = ListKind::dense;
  list.indices = checker.integers("indices", rows.indices, {tokens, any_size});
  list.capacity = rows.indices.shape[1];
  list.lengths = checker.integers("lengths", rows.lengths, {tokens});
  return list;
}

RowList flatten_rows(Checker& checker, const RangeRows& rows, std::int64_t tokens, const RowStore& store) {
  RowList list;
  list.kind = ListKind::range;
  list.first = checker.integers("first", rows.first, {tokens});
  list.count = checker.integers("count", rows.count, {tokens});
  list.query_start = checker.integers("query_start", rows.query_start, {any_size});
  if (rows.query_start.shape[0] < 1) checker.fail("query_start", "has shape [0], expected [requests + 1]");
  list.requests = rows.query_start.shape[0] - 1;
  if (rows.block_table.has_value() == rows.row_base.has_value()) {
    checker.fail("block_table", rows.block_table ? "and row_base are both given, expected exactly one of them"
                                                 : "and row_base are both absent, expected exactly one of them");
  }
  if (rows.block_table) {
    list.table.entries = checker.integers("block_table", rows.block_table, {list.requests, any_size});
    list.table.requests = list.requests;
    list.table.columns = rows.block_table->shape[1];
    list.table.rows_per_page = store.rows_per_page;
    list.table.pages = store.rows / store.rows_per_page;
    if (list.table.columns == 0) list.requests = 0;  // a table without columns holds no row of any request
  } else {
    list.row_base = checker.integers("row_base", rows.row_base, {list.requests});
  }
  if (rows.ring_rows < 0 || rows.ring_rows > longest_ring) {
    checker.fail("ring_rows", "is " + std::to_string(rows.ring_rows) + ", expected 0 to 2^31");
  }
  list.ring_rows = rows.ring_rows;
  if (rows.max_queries_per_request < 0) {
    checker.fail("max_queries_per_request",
                 "is " + std::to_string(rows.max_queries_per_request) + ", expected 0 (unknown) or more");
  }
  list.max_queries_per_request = rows.max_queries_per_request;
  return list;
}

SegmentProblem flatten_segment(Checker& checker, int index, const Segment& segment, std::int64_t tokens) {
  const Checker::Scope scope = checker.within("segments", index);
  SegmentProblem problem;
  problem.store = flatten_source(checker, "kv", segment.kv);
  const Checker::Scope rows_scope = checker.within("rows");
  problem.list =
      std::visit([&](const auto& rows) { return flatten_rows(checker, rows, tokens, problem.store); }, segment.rows);
  return problem;
}

// ---- tensors that both operators have -------------------------------------------------------------------------------

/// `[T, H]` f32, optional; absent leaves the pointer null.
void flatten_per_head(Checker& checker, const char* argument, const OptionalTensor& view, std::int64_t tokens,
                      std::int64_t heads, float*& data, std::int64_t& stride_token, std::int64_t& stride_head) {
  if (!view) return;
  checker.tensor(argument, *view, {DataType::f32}, {tokens, heads});
  checker.writable(argument, *view);
  data = static_cast<float*>(view->data);
  stride_token = view->stride[0];
  stride_head = view->stride[1];
}

/// The members that AttentionProblem and MergeProblem share: sink, out, lse.
template <class Arguments, class Problem>
void flatten_results(Checker& checker, const Arguments& arguments, Problem& problem) {
  if (arguments.sink) {
    const TensorView& sink = *arguments.sink;
    checker.tensor("sink", sink, {DataType::f32}, {any_size});
    if (sink.shape[0] < problem.heads) {
      checker.fail("sink", "has shape " + shape_text(sink) + ", expected at least [" + std::to_string(problem.heads) +
                               "], one logit per head");
    }
    problem.sink = static_cast<const float*>(sink.data);
    problem.sink_stride = sink.stride[0];
  }
  const TensorView& out = arguments.out;
  checker.tensor("out", out, {DataType::bf16, DataType::f32}, {problem.tokens, problem.heads, v4_row.value_width});
  checker.packed_rows("out", out);
  checker.writable("out", out);
  problem.out = out.data;
  problem.out_is_f32 = out.dtype == DataType::f32;
  problem.out_stride_token = out.stride[0];
  problem.out_stride_head = out.stride[1];
  flatten_per_head(checker, "lse", arguments.lse, problem.tokens, problem.heads, problem.lse, problem.lse_stride_token,
                   problem.lse_stride_head);
}

// ---- the calls ------------------------------------------------------------------------------------------------------

void flatten_epilogue(Checker& checker, const Epilogue& epilogue, AttentionProblem& problem) {
  if (epilogue.kind == Epilogue::Kind::none) return;
  const Checker::Scope scope = checker.within("epilogue");
  checker.tensor("cos_sin", epilogue.cos_sin, {DataType::f32}, {any_size, v4_row.rope_width});
  checker.packed_rows("cos_sin", epilogue.cos_sin);
  problem.cos_sin = static_cast<const float*>(epilogue.cos_sin.data);
  problem.cos_sin_stride = epilogue.cos_sin.stride[0];
  problem.cos_sin_rows = epilogue.cos_sin.shape[0];
  problem.positions = checker.integers("positions", epilogue.positions, {problem.tokens});
}

void check_schedule(Checker& checker, const Schedule& schedule) {
  const Checker::Scope scope = checker.within("schedule");
  if (schedule.splits < 0) {
    checker.fail("splits", "is " + std::to_string(schedule.splits) + ", expected 0 (chosen) or more");
  }
}

}  // namespace

AttentionProblem flatten(Checker& checker, const Attention& arguments) {
  AttentionProblem problem;
  const TensorView& q = arguments.q;
  checker.tensor("q", q, {DataType::bf16}, {any_size, any_size, v4_row.query_width});
  checker.packed_rows("q", q);
  checker.aligned_rows("q", q, 16);
  problem.q = static_cast<const std::uint16_t*>(q.data);
  problem.q_stride_token = q.stride[0];
  problem.q_stride_head = q.stride[1];
  problem.tokens = q.shape[0];
  problem.heads = q.shape[1];

  const std::size_t segments = arguments.segments.size();
  if (segments < 1 || segments > AttentionProblem::max_segments) {
    checker.fail("segments", "has " + std::to_string(segments) + " entries, expected 1 to " +
                                 std::to_string(AttentionProblem::max_segments));
  }
  for (const Segment& segment : arguments.segments) {
    const int index = problem.segment_count++;
    problem.segments[index] = flatten_segment(checker, index, segment, problem.tokens);
  }

  if (!std::isfinite(arguments.scale)) {
    checker.fail("scale", "is " + std::to_string(arguments.scale) + ", expected a finite number");
  }
  problem.scale = arguments.scale;
  flatten_results(checker, arguments, problem);
  flatten_per_head(checker, "max_logits", arguments.max_logits, problem.tokens, problem.heads, problem.max_logits,
                   problem.max_logits_stride_token, problem.max_logits_stride_head);
  flatten_epilogue(checker, arguments.epilogue, problem);
  check_schedule(checker, arguments.schedule);
  return problem;
}

AttentionProblem flatten_attention(const Attention& arguments) {
  Checker checker("attention");
  return flatten(checker, arguments);
}

MergeProblem flatten(Checker& checker, const MergeStates& arguments) {
  MergeProblem problem;
  const TensorView& partial = arguments.partial_out;
  checker.tensor("partial_out", partial, {DataType::bf16, DataType::f32},
                 {any_size, any_size, any_size, v4_row.value_width});
  checker.packed_rows("partial_out", partial);
  problem.partial_out = partial.data;
  problem.partial_is_f32 = partial.dtype == DataType::f32;
  problem.partial_stride_part = partial.stride[0];
  problem.partial_stride_token = partial.stride[1];
  problem.partial_stride_head = partial.stride[2];
  problem.parts = partial.shape[0];
  problem.tokens = partial.shape[1];
  problem.heads = partial.shape[2];

  const TensorView& lse = arguments.partial_lse;
  checker.tensor("partial_lse", lse, {DataType::f32}, {problem.parts, problem.tokens, problem.heads});
  problem.partial_lse = static_cast<const float*>(lse.data);
  problem.partial_lse_stride_part = lse.stride[0];
  problem.partial_lse_stride_token = lse.stride[1];
  problem.partial_lse_stride_head = lse.stride[2];
  flatten_results(checker, arguments, problem);
  return problem;
}

}  // namespace raggedmla
