// Attention of query tiles on Hopper, 1 to 64 heads.
//
// A work item is up to eight neighbouring queries whose heads fill the 64 rows of a warpgroup product (4 queries of 16
// heads). A block, one per multiprocessor, takes every gridDim-th item and walks the rows that any query of the item
// selects, 64 at a time; what a query does not select gets weight 0. For ranges and for lists that neighbours share,
// each row is so loaded once instead of once per query, and the matrix units see full tiles.
//
//   loading warpgroup   | q1 | K0 | K1 | K2 | K3 | ...         three stages of 64 KiB; q travels as a tile, too
//   score warpgroup          | S0 P0 | S1 P1 | S2 P2 | ...     S = q K^T, q mostly in registers; two P of 8 KiB
//   output warpgroups                | O+=P0 V0 | O+=P1 V1     two, 64 x 256 fp32 each in registers
//
// Scores of a tile and the products of the tile before it run at the same time, so the softmax costs the matrix units
// nothing. A bf16 output leaves by the copy engine through the stage that brought the next item's q, while that item's
// first tiles are scored.
#include "attention/sm90/accumulate_output.cuh"
#include "attention/sm90/load_rows.cuh"
#include "attention/sm90/score_rows.cuh"
#include "attention/sm90/tensor_boxes.hpp"
#include "attention/sm90/union_lists.cuh"
#include "base/workspace.hpp"
#include "gpu/preload.hpp"

namespace raggedmla::gpu::sm90 {

namespace {

constexpr int block_threads = 4 * group_threads;

/// `with_fp8`: some source of the call has fp8 pages. `with_largest`: keeps the largest logits; for calls that ask for
/// them, and for all over fp8 pages, which decoding binds.
template <bool with_fp8, bool with_largest>
__global__ void __launch_bounds__(block_threads, 1) query_tiles(const __grid_constant__ QueryTileCall call) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(shared_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      shared.tile_full[i].initialize(tile_full_arrivals);
      shared.tile_empty[i].initialize(tile_empty_arrivals);
    }
    for (int i = 0; i < 2; ++i) {
      shared.scores_full[i].initialize(scores_full_arrivals);
      shared.scores_empty[i].initialize(scores_empty_arrivals);
    }
    for (int i = 0; i < turns; ++i) {
      shared.multiplied[i].initialize(multiplied_arrivals);
      shared.q_taken[i].initialize(q_taken_arrivals);
    }
    fence_barrier_initialization();
  }
  const AttentionProblem& problem = call.problem;
  if (threadIdx.x < query_rows) {
    const unsigned query = threadIdx.x / problem.heads, head = threadIdx.x % problem.heads;
    shared.query_of_row[threadIdx.x] = query < call.queries_per_item ? query : 255;
    shared.sink[threadIdx.x] = sink_of(problem, head);
  }
  __syncthreads();

  const int group = static_cast<int>(threadIdx.x) / group_threads;
  if (group == 0) {
    shrink_registers<load_registers>();
    Loader<with_fp8>(call, shared).run();
  } else if (group == 1) {
    grow_registers<product_registers>();
    ScoreGroup<with_largest>(call, shared).run();
  } else {
    grow_registers<product_registers>();
    OutputGroup(call, shared, group - 2).run();
  }
}

bool is_flat_bf16(const SegmentProblem& segment) {
  const auto& [store, list] = segment;
  return list.kind == ListKind::range && !list.table.entries && list.ring_rows == 0 && store.kind == StoreKind::bf16 &&
         store.rows_per_page == 1 && store.rows > 0 && store.rows < (1ll << 31) && is_box_stride(store.page_stride);
}

/// Whether logical row r of request b may be row b * columns * rows_per_page + r of the source.
bool is_in_order(const SegmentProblem& segment) {
  return segment.list.kind == ListKind::range && segment.list.table.in_order != nullptr &&
         segment.list.ring_rows == 0 && segment.store.rows > 0;
}

/// The same rows without pages.
RowStore flattened(const RowStore& store) {
  RowStore flat = store;
  flat.page_stride = store.row_stride;
  flat.rows_per_page = 1;
  return flat;
}

/// Rows of a flat source as blocks of 64 columns: (column, row, block).
CUtensorMap row_map(const RowStore& store, int rows, int blocks) {
  return bf16_tensor_map<3>(store.data, {{block_columns, block_columns, 2},
                                         {store.rows, rows, store.page_stride},
                                         {width / block_columns, blocks, block_columns * 2}});
}

}  // namespace

bool takes(const AttentionProblem& problem, const Schedule& schedule) {
  if (schedule.splits > 1 || schedule.batch_invariant) return false;  // tiles depend on the queries that share them
  if (problem.heads < 1 || problem.heads > max_heads || problem.tokens >= (1ll << 31)) return false;
  if (!(problem.scale > 0)) return false;  // maxima are taken before the scale
  if (!q_is_box(problem)) return false;
  for (int s = 0; s < problem.segment_count; ++s) {
    const auto& [store, list] = problem.segments[s];
    constexpr std::int64_t most_rows = 1ll << 30;  // rows and list entries are counted in 32 bits
    if (store.rows > most_rows || list.ring_rows > most_rows || list.capacity > most_rows) return false;
    if (list.table.columns > most_rows / list.table.rows_per_page) return false;
    // Rows are found in 32 bits, units of 16 bytes, and scale records in units of 8. A page may be longer than the way
    // to the next one.
    const std::int64_t pages = store.rows / store.rows_per_page;
    if (pages * store.page_stride + (store.rows_per_page - 1) * store.row_stride > (1ll << 35)) return false;
  }
  return true;
}

namespace {

/// Heads that the portable kernel serves with one reading of the rows.
constexpr int portable_heads = 16;

/// Items a multiprocessor from which tiles are faster than the portable kernel, which splits the lists of few queries.
/// From measurements on an H200, docs/kernels-hopper.md.
float least_items(const AttentionProblem& problem, const Schedule& schedule, bool was_fp8) {
  const int queries = queries_per_item(problem.heads);
  bool has_lists = false;
  std::int64_t rows = 0;
  for (int s = 0; s < problem.segment_count; ++s) {
    has_lists |= problem.segments[s].list.kind != ListKind::range;
    rows += problem.segments[s].store.rows;
  }
  // Unpacking takes its time, which a window alone does not earn so soon.
  if (was_fp8 && queries > 1) return rows >= 2 * problem.tokens ? 0.4f : 0.67f;
  const float overlap = has_lists ? schedule.expected_overlap : 1.0f;  // neighbours' ranges are the same but for a row
  // The portable kernel reads rows once for every slice of heads.
  const auto slices = static_cast<float>((problem.heads + portable_heads - 1) / portable_heads);
  return 1.4f * distinct_share(queries, overlap) / slices;
}

}  // namespace

bool pays(const AttentionProblem& problem, const Schedule& schedule, int multiprocessors, bool was_fp8) {
  const int queries = queries_per_item(problem.heads);
  const std::int64_t items = problem.tokens / queries;
  if (static_cast<float>(items) < least_items(problem, schedule, was_fp8) * static_cast<float>(multiprocessors)) {
    return false;
  }
  // Lists that share little leave most of a tile's products without use if many queries share it. With more heads
  // the portable kernel takes longer all the same.
  const bool shares_little = schedule.expected_overlap >= 0 && schedule.expected_overlap < 0.2f;
  for (int s = 0; s < problem.segment_count; ++s) {
    const auto& [store, list] = problem.segments[s];
    if (store.kind != StoreKind::bf16) return false;
    if (list.kind != ListKind::range && shares_little && problem.heads <= portable_heads) return false;
  }
  return true;
}

// ---- the plan: a function of shapes ---------------------------------------------------------------------------------

namespace {

/// Scratch for merged lists; a call that needs more is cut into rounds of items.
constexpr std::int64_t round_bytes = std::int64_t{128} << 20;
/// Neighbouring queries that share less than this are not worth merging.
constexpr float least_overlap = 0.03f;

struct Plan {
  int queries_per_item, items, items_per_round;
  std::int64_t capacity[AttentionProblem::max_segments]{};  // of an item's merged list, 0 = not merged
};

constexpr std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }
std::int64_t merged_bytes(std::int64_t items, std::int64_t capacity) {
  return capacity == 0 ? 0
                       : align(items * std::int64_t{sizeof(std::int32_t)}) +
                             align(items * capacity * std::int64_t{sizeof(uint2)});
}

/// Room for the merged list of an item. Ragged lists twice as long as the average still fit; longer ones, and those
/// that exceed the counters, are walked one by one.
std::int64_t merged_capacity(const AttentionProblem& problem, const SegmentProblem& segment, const Schedule& schedule) {
  const auto& [store, list] = segment;
  const int queries = queries_per_item(problem.heads);
  const bool share_nothing = schedule.expected_overlap >= 0 && schedule.expected_overlap < least_overlap;
  if (list.kind == ListKind::range || queries < 2 || problem.tokens < 2 || share_nothing || store.rows > union_rows)
    return 0;
  const std::int64_t longest =
      list.kind == ListKind::dense ? list.capacity : 2 * ((list.capacity + problem.tokens - 1) / problem.tokens);
  const std::int64_t capacity = longest < union_entries / queries ? longest * queries : union_entries;
  return capacity;
}

Plan plan(const AttentionProblem& problem, const Schedule& schedule) {
  Plan plan{};
  plan.queries_per_item = queries_per_item(problem.heads);
  plan.items = static_cast<int>((problem.tokens + plan.queries_per_item - 1) / plan.queries_per_item);
  plan.items_per_round = plan.items;
  std::int64_t item_bytes = 0;
  for (int s = 0; s < problem.segment_count; ++s) {
    plan.capacity[s] = merged_capacity(problem, problem.segments[s], schedule);
    item_bytes += plan.capacity[s] * std::int64_t{sizeof(uint2)};
  }
  if (item_bytes * plan.items > round_bytes) plan.items_per_round = static_cast<int>(round_bytes / item_bytes);
  return plan;
}

QueryTileCall call_of(const AttentionProblem& problem, const Plan& plan) {
  QueryTileCall call;
  call.problem = problem;
  call.queries_per_item = plan.queries_per_item;
  call.wide_stores = takes_wide_stores(problem);
  for (int s = 0; s < problem.segment_count; ++s) {
    const bool in_order = is_in_order(problem.segments[s]);
    call.rows_by_copy_engine[s] = in_order || is_flat_bf16(problem.segments[s]);
    if (!call.rows_by_copy_engine[s]) continue;
    const RowStore store = in_order ? flattened(problem.segments[s].store) : problem.segments[s].store;
    // A whole tile is one box of eight column blocks; the blocks of a narrow one come one by one, to their places.
    call.maps[s][0] = row_map(store, tile_rows, width / block_columns);
    call.maps[s][1] = row_map(store, narrow_rows, 1);
  }
  const int heads = static_cast<int>(problem.heads);
  const auto item_map = [&](const void* data, std::int64_t head_stride, std::int64_t token_stride) {
    return bf16_tensor_map<3>(data, {{width, block_columns, 2},
                                     {heads, heads, head_stride},
                                     {problem.tokens, plan.queries_per_item, token_stride}});
  };
  call.q_map = item_map(problem.q, q_head_stride(problem), q_token_stride(problem));
  call.out_by_copy_engine = out_is_box(problem);
  if (call.out_by_copy_engine) {
    call.out_map = item_map(problem.out, out_head_stride(problem), out_token_stride(problem));
  }
  return call;
}

/// Hands out the workspace: for every merged segment lengths and entries.
void place_unions(QueryTileCall& call, const Plan& plan, std::byte* at) {
  for (int s = 0; s < call.problem.segment_count; ++s) {
    if (plan.capacity[s] == 0) continue;
    call.unions[s].lengths = reinterpret_cast<std::int32_t*>(at);
    call.unions[s].entries =
        reinterpret_cast<uint2*>(at + align(plan.items_per_round * std::int64_t{sizeof(std::int32_t)}));
    call.unions[s].capacity = plan.capacity[s];
    at += merged_bytes(plan.items_per_round, plan.capacity[s]);
  }
}

bool has_fp8(const AttentionProblem& problem) {
  for (int s = 0; s < problem.segment_count; ++s) {
    if (problem.segments[s].store.kind != StoreKind::bf16) return true;
  }
  return false;
}

template <int queries, bool sparse>
void merge_lists(const UnionCall& call, int items, Stream stream) {
  constexpr int threads = queries * union_step(sparse);
  const UnionLayout layout(queries, threads, call.store.rows, sparse);
  launch(union_lists<queries, sparse>, dim3(static_cast<unsigned>(items)), dim3(threads),
         static_cast<std::size_t>(layout.bytes()), stream, call);
}
template <int queries>
void merge_lists(const UnionCall& call, int items, Stream stream) {
  if (merges_sparsely(call)) {
    merge_lists<queries, true>(call, items, stream);
  } else {
    merge_lists<queries, false>(call, items, stream);
  }
}
void merge_lists(const QueryTileCall& call, int segment, int items, Stream stream) {
  const UnionList& merged = call.unions[segment];
  const auto& [store, list] = call.problem.segments[segment];
  const UnionCall lists{store,           list,           call.problem.tokens, call.queries_per_item,
                        call.first_item, merged.lengths, merged.entries,      merged.capacity};
  if (call.queries_per_item <= 2) {
    merge_lists<2>(lists, items, stream);
  } else if (call.queries_per_item <= 4) {
    merge_lists<4>(lists, items, stream);
  } else {
    merge_lists<8>(lists, items, stream);
  }
}

template <int queries>
void load_union_kernels() {
  const auto bytes = [](bool sparse) {
    return static_cast<std::size_t>(
        UnionLayout(queries, queries * union_step(sparse), sparse ? union_rows : dense_union_rows, sparse).bytes());
  };
  load_kernel(union_lists<queries, true>, bytes(true));
  load_kernel(union_lists<queries, false>, bytes(false));
}

}  // namespace

std::size_t workspace_bytes(const AttentionProblem& problem, const Schedule& schedule) {
  const Plan cut = plan(problem, schedule);
  std::int64_t bytes = 0;
  for (const std::int64_t capacity : cut.capacity) bytes += merged_bytes(cut.items_per_round, capacity);
  return bytes > 0 ? workspace_bytes_for(static_cast<std::size_t>(bytes)) : 0;
}

/// A launch of tiles behind a merge begins while the merge runs (dependent_launch.cuh). Only the loading warpgroup
/// reads what the merge writes and waits for it; all else that tiles read or write, no kernel still uses: the merge
/// itself was launched behind everything in front of it.
void attention(const AttentionProblem& problem, const Schedule& schedule, int device, Workspace workspace,
               Stream stream) {
  DeviceScope scope(device);
  static FirstUse first_use;
  first_use.on(device, preload);
  const Plan cut = plan(problem, schedule);
  QueryTileCall call = call_of(problem, cut);
  if (workspace.data != nullptr) place_unions(call, cut, workspace_scratch(workspace));
  const auto kernel = has_fp8(problem)                ? query_tiles<true, true>
                      : problem.max_logits != nullptr ? query_tiles<false, true>
                                                      : query_tiles<false, false>;
  const int processors = properties(device).multiprocessors;
  for (call.first_item = 0; call.first_item < cut.items; call.first_item = call.last_item) {
    const int left = cut.items - call.first_item, items = left < cut.items_per_round ? left : cut.items_per_round;
    call.last_item = call.first_item + items;
    bool merges = false;
    for (int s = 0; s < problem.segment_count; ++s) {
      if (call.unions[s].lengths == nullptr) continue;
      merge_lists(call, s, items, stream);
      merges = true;
    }
    const dim3 grid(static_cast<unsigned>(items < processors ? items : processors));
    if (merges) {
      launch_dependent(kernel, grid, dim3(block_threads), sizeof(SharedMemory), stream, call);
    } else {
      launch(kernel, grid, dim3(block_threads), sizeof(SharedMemory), stream, call);
    }
  }
}

void preload() {
  load_kernel(query_tiles<false, false>, sizeof(SharedMemory));
  load_kernel(query_tiles<false, true>, sizeof(SharedMemory));
  load_kernel(query_tiles<true, true>, sizeof(SharedMemory));
  load_union_kernels<2>();
  load_union_kernels<4>();
  load_union_kernels<8>();
}

}  // namespace raggedmla::gpu::sm90
