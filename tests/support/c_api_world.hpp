// A small problem with the operands of every operator, for comparing the C ABI with the C++ API.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "raggedmla/raggedmla.h"
#include "raggedmla/raggedmla.hpp"
#include "support/tensor.hpp"

namespace raggedmla::test {

class World {
 public:
  static constexpr std::int64_t tokens = 4, requests = 2, heads = 3, width = 8, columns = 3, page_rows = 4, rows = 24;

  World() {
    Random random(7);
    bf16_rows.fill_normal(random);
    q.fill_normal(random);
    partial_out.fill_normal(random);
    partial_lse.fill_normal(random);
    sink.fill_normal(random);
    cos_sin.fill_normal(random);
    for (Tensor* list : {&topk, &list_indices}) {
      for (std::int64_t i = 0; i < list->size(); ++i) list->set_flat(i, static_cast<double>(random.integer(-1, 11)));
    }
    for (std::int64_t i = 0; i < slots.size(); ++i) slots.set_flat(i, static_cast<double>(rows - 1 - i));
    block_table.fill_values({4, 0, 2, 1, 3, 5});
    lengths.fill_values({8, 0, 3, 99});
    query_start.fill_values({0, 1, 4});
    sequence_lengths.fill_values({9, 12});
    positions.fill_values({8, 9, 10, 11});
    request_of_query.fill_values({0, 1, 1, 1});
    gathered.fill_values({6, 5});
    indptr_in.fill_values({0, 2, 2, 7, 30});
    range_first.fill_values({0, 1, 2, 3});
    range_count.fill_values({9, 3, 3, 4});
    row_base.fill_values({0, 12});
    valid.fill_values({1, 1, 0, 1});
    quantize_rows({bf16_rows, slots, cache()});
  }

  Tensor bf16_rows{DataType::bf16, {rows, 512}}, slots{DataType::i32, {rows}};
  Tensor pages{DataType::u8, {6, 5 * 576}};
  Tensor q{DataType::bf16, {tokens, heads, 512}}, sink{DataType::f32, {heads}};
  Tensor partial_out{DataType::bf16, {2, tokens, heads, 512}}, partial_lse{DataType::f32, {2, tokens, heads}};
  Tensor cos_sin{DataType::f32, {16, 64}}, positions{DataType::i64, {tokens}};
  Tensor topk{DataType::i32, {tokens, width}}, list_indices{DataType::i64, {tokens, width}};
  Tensor lengths{DataType::i32, {tokens}}, valid{DataType::boolean, {tokens}};
  Tensor block_table{DataType::i32, {requests, columns}}, request_of_query{DataType::i32, {tokens}};
  Tensor query_start{DataType::i32, {requests + 1}}, sequence_lengths{DataType::i32, {requests}};
  Tensor gathered{DataType::i32, {requests}}, indptr_in{DataType::i64, {tokens + 1}};
  Tensor range_first{DataType::i32, {tokens}}, range_count{DataType::i32, {tokens}},
      row_base{DataType::i32, {requests}};
  // Outputs.
  Tensor bf16_out{DataType::bf16, {rows, 512}}, gather_out{DataType::bf16, {requests, 5, 512}};
  Tensor dense_out{DataType::i32, {tokens, width}}, lengths_out{DataType::i32, {tokens}};
  Tensor flat_out{DataType::i32, {tokens * 2 * width}}, indptr_out{DataType::i32, {tokens + 1}};
  Tensor graph_indices{DataType::i64, {tokens * width}}, graph_indptr{DataType::i64, {tokens + 3}};
  Tensor first_out{DataType::i32, {tokens}}, count_out{DataType::i32, {tokens}};
  Tensor out{DataType::f32, {tokens, heads, 512}}, lse{DataType::f32, {tokens, heads}};
  Tensor max_logits{DataType::f32, {tokens, heads}};

  std::vector<Tensor*> outputs() {
    return {&pages,         &bf16_out,     &gather_out, &dense_out, &lengths_out, &flat_out, &indptr_out,
            &graph_indices, &graph_indptr, &first_out,  &count_out, &out,         &lse,      &max_logits};
  }
  std::vector<std::vector<std::uint8_t>> output_bytes() {
    std::vector<std::vector<std::uint8_t>> all;
    for (Tensor* tensor : outputs()) {
      const auto* bytes = static_cast<const std::uint8_t*>(tensor->view().data);
      all.emplace_back(bytes, bytes + static_cast<std::size_t>(tensor->size()) * element_bytes(tensor->view().dtype));
    }
    return all;
  }
  void poison_outputs() {
    for (Tensor* tensor : outputs()) {
      if (tensor == &pages) continue;  // the cache is an input of most operators
      std::memset(tensor->view().data, 0x5A,
                  static_cast<std::size_t>(tensor->size()) * element_bytes(tensor->view().dtype));
    }
  }

  PagedKv cache() { return {pages, page_rows, Fp8Encoding::ocp}; }
  RequestQueries queries() { return {query_start, sequence_lengths}; }
  DenseOutput dense() { return {dense_out, lengths_out}; }
  RaggedOutput ragged() { return {flat_out, indptr_out, lengths_out}; }

  // ---- the same through the C ABI; what a pointer points to lives as long as the world ----
  const raggedmla_tensor* c(const Tensor& tensor) {
    const TensorView& view = tensor.view();
    raggedmla_tensor c{sizeof(raggedmla_tensor),
                       view.data,
                       static_cast<std::int32_t>(view.dtype),
                       RAGGEDMLA_CPU,
                       0,
                       view.rank,
                       {},
                       {}};
    std::copy(view.shape.begin(), view.shape.end(), c.shape);
    std::copy(view.stride.begin(), view.stride.end(), c.stride);
    return &c_tensors.emplace_back(c);
  }
  raggedmla_kv c_cache() {
    raggedmla_kv kv = RAGGEDMLA_KV_INIT;
    kv.rows_per_page = page_rows;
    kv.rows = c(pages);
    return kv;
  }
  raggedmla_query_layout c_queries() {
    raggedmla_query_layout layout = RAGGEDMLA_QUERY_LAYOUT_INIT;
    layout.query_start = c(query_start);
    layout.sequence_lengths = c(sequence_lengths);
    return layout;
  }
  raggedmla_list_output c_output(raggedmla_list_kind kind) {
    raggedmla_list_output list = RAGGEDMLA_LIST_OUTPUT_INIT;
    list.kind = kind;
    list.indices = c(kind == RAGGEDMLA_LIST_DENSE ? dense_out : flat_out);
    list.indptr = c(indptr_out);
    list.lengths = c(lengths_out);
    list.first = c(first_out);
    list.count = c(count_out);
    return list;
  }
  std::deque<raggedmla_tensor> c_tensors;

  // ---- a call of attention over four kinds of segment ----
  std::array<Segment, 4> segments() {
    return {Segment{cache(), DenseRows{list_indices, lengths}},
            Segment{DenseKv{bf16_rows}, RaggedRows{topk_flat(), indptr_in}},
            Segment{cache(), RangeRows{range_first, range_count, query_start, block_table, {}, 0, 0}},
            Segment{DenseKv{bf16_rows}, RangeRows{range_first, range_count, query_start, {}, row_base, 5, 3}}};
  }
  TensorView topk_flat() { return TensorView(topk.view().data, DataType::i32, {tokens * width}); }
  Attention attention_call(const std::array<Segment, 4>& segments) {
    Attention call;
    call.q = q;
    call.segments = segments;
    call.sink = sink;
    call.scale = 0.125f;
    call.out = out;
    call.lse = lse;
    call.max_logits = max_logits;
    call.epilogue = {Epilogue::Kind::inverse_rope, cos_sin, positions};
    call.schedule.kernel = Schedule::Kernel::reference;
    return call;
  }

  struct CAttention {
    raggedmla_kv paged = RAGGEDMLA_KV_INIT, flat = RAGGEDMLA_KV_INIT;
    raggedmla_rows rows[4] = {RAGGEDMLA_ROWS_INIT, RAGGEDMLA_ROWS_INIT, RAGGEDMLA_ROWS_INIT, RAGGEDMLA_ROWS_INIT};
    raggedmla_segment segments[4] = {RAGGEDMLA_SEGMENT_INIT, RAGGEDMLA_SEGMENT_INIT, RAGGEDMLA_SEGMENT_INIT,
                                     RAGGEDMLA_SEGMENT_INIT};
    raggedmla_epilogue epilogue = RAGGEDMLA_EPILOGUE_INIT;
    raggedmla_schedule schedule = RAGGEDMLA_SCHEDULE_INIT;
    raggedmla_attention_args args = RAGGEDMLA_ATTENTION_INIT;
    raggedmla_workspace workspace = RAGGEDMLA_WORKSPACE_INIT;

    explicit CAttention(World& world) {
      paged = world.c_cache();
      flat.kind = RAGGEDMLA_KV_DENSE;
      flat.rows = world.c(world.bf16_rows);
      rows[0].indices = world.c(world.list_indices);
      rows[0].lengths = world.c(world.lengths);
      rows[1].kind = RAGGEDMLA_LIST_RAGGED;
      raggedmla_tensor flattened = *world.c(world.topk);
      flattened.rank = 1;
      flattened.shape[0] = tokens * width;
      flattened.stride[0] = 1;
      rows[1].indices = &world.c_tensors.emplace_back(flattened);
      rows[1].indptr = world.c(world.indptr_in);
      for (raggedmla_rows* range : {&rows[2], &rows[3]}) {
        range->kind = RAGGEDMLA_LIST_RANGE;
        range->first = world.c(world.range_first);
        range->count = world.c(world.range_count);
        range->query_start = world.c(world.query_start);
      }
      rows[2].block_table = world.c(world.block_table);
      rows[3].row_base = world.c(world.row_base);
      rows[3].ring_rows = 5;
      rows[3].max_queries_per_request = 3;
      for (int i = 0; i < 4; ++i) {
        segments[i].kv = i % 2 == 0 ? &paged : &flat;
        segments[i].rows = &rows[i];
      }
      epilogue.kind = RAGGEDMLA_EPILOGUE_INVERSE_ROPE;
      epilogue.cos_sin = world.c(world.cos_sin);
      epilogue.positions = world.c(world.positions);
      schedule.kernel = RAGGEDMLA_KERNEL_REFERENCE;
      args.q = world.c(world.q);
      args.segments = segments;
      args.segment_count = 4;
      args.scale = 0.125f;
      args.sink = world.c(world.sink);
      args.out = world.c(world.out);
      args.lse = world.c(world.lse);
      args.max_logits = world.c(world.max_logits);
      args.epilogue = &epilogue;
      args.schedule = &schedule;
    }
    CAttention(const CAttention&) = delete;
  };
};

}  // namespace raggedmla::test
