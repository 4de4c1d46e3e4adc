#include "c_api/arguments.hpp"

namespace raggedmla::c_api {

QuantizeRows arguments(const Reader& read, const raggedmla_quantize_rows_args* given) {
  const auto c = read.structure("args", given);
  return {read.tensor("rows", c.rows), read.tensor("slots", c.slots), read.paged("cache", c.cache),
          read.enumerator("floor", c.floor, ScaleFloor::quotient)};
}

DequantizeRows arguments(const Reader& read, const raggedmla_dequantize_rows_args* given) {
  const auto c = read.structure("args", given);
  return {read.kv("source", c.source), read.tensor("slots", c.slots), read.tensor("out", c.out)};
}

GatherRows arguments(const Reader& read, const raggedmla_gather_rows_args* given) {
  const auto c = read.structure("args", given);
  return {read.paged("source", c.source), read.tensor("block_table", c.block_table),
          read.tensor("first", c.first),  read.tensor("count", c.count),
          read.tensor("out", c.out),      c.out_offset};
}

BuildRagged arguments(const Reader& read, const raggedmla_build_ragged_args* given) {
  const auto c = read.structure("args", given);
  return {read.tensor("indices", c.indices), read.optional("lengths", c.lengths), read.output<RaggedOutput>(c.out),
          c.row_limit};
}

TranslateTopk arguments(const Reader& read, const raggedmla_translate_topk_args* given) {
  const auto c = read.structure("args", given);
  return {read.tensor("topk", c.topk),
          read.tensor("request_of_query", c.request_of_query),
          read.tensor("block_table", c.block_table),
          c.rows_per_page,
          c.pages,
          read.optional("valid", c.valid),
          read.optional("lengths", c.lengths),
          read.output<ListOutput>(c.out)};
}

WindowRows arguments(const Reader& read, const raggedmla_window_rows_args* given) {
  const auto c = read.structure("args", given);
  return {read.queries(c.queries),
          c.query_count,
          c.window,
          c.causal != 0,
          read.optional("block_table", c.block_table),
          c.rows_per_page,
          read.optional("valid", c.valid),
          c.width,
          read.output<RangeOrListOutput>(c.out)};
}

CompressedRows arguments(const Reader& read, const raggedmla_compressed_rows_args* given) {
  const auto c = read.structure("args", given);
  return {read.queries(c.queries),
          c.query_count,
          c.ratio,
          read.optional("block_table", c.block_table),
          c.rows_per_page,
          read.optional("valid", c.valid),
          c.width,
          read.output<RangeOrListOutput>(c.out)};
}

Combine arguments(const Reader& read, const raggedmla_combine_args* given) {
  const auto c = read.structure("args", given);
  const QueryLayout layout = read.queries(c.queries);
  const auto* queries = std::get_if<RequestQueries>(&layout);
  if (queries == nullptr) read.fail("queries", "are given by position, expected by request");
  return {read.optional("topk", c.topk),
          *queries,
          c.query_count,
          read.tensor("gathered", c.gathered),
          c.rows_per_request,
          c.compressed_rows,
          c.ratio,
          c.window,
          read.output<ListOutput>(c.out)};
}

CopyToGraphBuffers arguments(const Reader& read, const raggedmla_copy_to_graph_buffers_args* given) {
  const auto c = read.structure("args", given);
  return {{read.tensor("source_indices", c.source_indices), read.tensor("source_indptr", c.source_indptr)},
          read.tensor("indices", c.indices),
          read.tensor("indptr", c.indptr)};
}

MergeStates arguments(const Reader& read, const raggedmla_merge_states_args* given) {
  const auto c = read.structure("args", given);
  return {read.tensor("partial_out", c.partial_out),
          read.tensor("partial_lse", c.partial_lse),
          read.optional("sink", c.sink),
          read.tensor("out", c.out),
          read.optional("lse", c.lse),
          read.kernel(c.kernel)};
}

AttentionArguments::AttentionArguments(const Reader& read, const raggedmla_attention_args* given) {
  const auto c = read.structure("args", given);
  if (c.segment_count < 1 || c.segment_count > max_segments) {
    read.fail("segment_count", "is " + std::to_string(c.segment_count) + ", expected 1 to 4");
  }
  const auto* next = reinterpret_cast<const unsigned char*>(c.segments);
  for (int i = 0; i < c.segment_count; ++i) {
    const auto segment = read.structure("segments", reinterpret_cast<const raggedmla_segment*>(next));
    segments_[i] = {read.kv("kv", segment.kv), read.rows("rows", segment.rows)};
    next += c.segments[0].struct_size;
  }
  attention_.q = read.tensor("q", c.q);
  attention_.segments = {segments_.data(), static_cast<std::size_t>(c.segment_count)};
  attention_.sink = read.optional("sink", c.sink);
  attention_.scale = c.scale;
  attention_.out = read.tensor("out", c.out);
  attention_.lse = read.optional("lse", c.lse);
  attention_.max_logits = read.optional("max_logits", c.max_logits);
  attention_.epilogue = read.epilogue(c.epilogue);
  attention_.schedule = read.schedule(c.schedule);
}

}  // namespace raggedmla::c_api
