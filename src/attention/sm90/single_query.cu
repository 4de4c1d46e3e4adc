// Attention of one query at a time on Hopper, 1 to 16 heads, bf16 rows.
//
// A block, one per multiprocessor, takes every gridDim-th query and walks its lists, 32 rows at a time, through a ring
// of six tiles in shared memory. What a tile needs is done by warpgroups that meet at transaction barriers only:
//
//   loading warpgroup  | q | K0 | K1 | K2 | K3 | ...     a row by one instruction; q travels as a tile, too
//   score warpgroup        | S0 P0 | S1 P1 | S2 P2 | ... mma.sync, q in registers
//   output warpgroup               | O+=P0 V0 | O+=P1 V1 mma.sync, O in registers
//
// Shared memory binds: a tile is written once and read twice, by S = q K^T and by O += P V. So every score warp has all
// of q in its registers, which leaves no slices of S to be added through shared memory, and nothing but the copies and
// the two products touches a row.
#include "attention/sm90/query_tiles.hpp"
#include "attention/sm90/single_query_load.cuh"
#include "attention/sm90/single_query_output.cuh"
#include "attention/sm90/single_query_score.cuh"
#include "attention/sm90/tensor_boxes.hpp"
#include "gpu/preload.hpp"

namespace raggedmla::gpu::sm90::single_query {

namespace {

constexpr int block_threads = 3 * group_threads;

__global__ void __launch_bounds__(block_threads, 1) attend_single_queries(const __grid_constant__ Call call) {
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
    fence_barrier_initialization();
  }
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / group_threads;
  if (group == 0) {
    shrink_registers<load_registers>();
    Loader(call, shared).run();
  } else if (group == 1) {
    grow_registers<score_registers>();
    ScoreGroup(call, shared).run();
  } else {
    grow_registers<output_registers>();
    OutputGroup(call, shared).run();
  }
}

/// Rows of 512 channels as lines of 64: (channel, line, row, plane), a row at a time.
CUtensorMap row_map(const void* data, std::int64_t rows, std::int64_t row_bytes, std::int64_t planes,
                    std::int64_t plane_bytes) {
  constexpr int line_channels = line_bytes / 2;
  return bf16_tensor_map<4>(data, {{line_channels, line_channels, 2},
                                   {width / line_channels, width / line_channels, line_bytes},
                                   {rows, 1, box_stride(rows, row_bytes)},
                                   {planes, 1, box_stride(planes, plane_bytes)}});
}
CUtensorMap row_map(const RowStore& store) {
  return row_map(store.data, store.rows_per_page, store.row_stride, store.rows / store.rows_per_page,
                 store.page_stride);
}

}  // namespace

bool takes(const AttentionProblem& problem, const Schedule& schedule) {
  if (schedule.splits > 1 || schedule.batch_invariant) return false;  // the choice of kernel depends on the batch
  if (problem.heads < 1 || problem.heads > max_heads || problem.segment_count < 1) return false;
  if (problem.tokens >= (1ll << 30)) return false;
  if (!q_is_box(problem)) return false;
  for (int s = 0; s < problem.segment_count; ++s) {
    const auto& [store, list] = problem.segments[s];
    constexpr std::int64_t most_rows = 1ll << 30;  // list entries are counted in 32 bits
    if (store.kind != StoreKind::bf16 || store.rows < store.rows_per_page || store.rows > most_rows) return false;
    if (!is_box_stride(box_stride(store.rows_per_page, store.row_stride)) ||
        !is_box_stride(box_stride(store.rows / store.rows_per_page, store.page_stride))) {
      return false;
    }
    if (list.ring_rows > most_rows || list.capacity > most_rows) return false;
    if (list.table.columns > most_rows / list.table.rows_per_page) return false;
  }
  return true;
}

// Both from measurements on an H200, docs/kernels-hopper.md.

bool suits(const AttentionProblem& problem, const Schedule& schedule) {
  bool has_lists = false, has_ranges = false;
  for (int s = 0; s < problem.segment_count; ++s) {
    const bool is_range = problem.segments[s].list.kind == ListKind::range;
    has_lists |= !is_range;
    has_ranges |= is_range;
  }
  // Without a hint: never much worse than query tiles, which are slower than the portable kernel if little is shared.
  if (schedule.expected_overlap < 0) return has_lists && !has_ranges;
  // Query tiles overtake where two thirds of their lists' entries name different rows: 0.64 to 0.74 were measured with
  // 1 to 16 heads and 384 to 1,152 rows, 0.57 where the last round of items is nearly empty.
  return has_lists && distinct_share(queries_per_item(problem.heads), schedule.expected_overlap) > 0.66f;
}

bool pays(const AttentionProblem& problem, int multiprocessors, bool was_fp8) {
  std::int64_t longest = 0;  // entries of a query's lists, about
  bool has_lists = false;
  for (int s = 0; s < problem.segment_count; ++s) {
    const RowList& list = problem.segments[s].list;
    if (list.kind == ListKind::range || problem.tokens == 0) continue;
    has_lists = true;
    longest += list.kind == ListKind::dense ? list.capacity : list.capacity / problem.tokens;
  }
  // The last round of queries leaves multiprocessors idle, which the portable kernel fills by splitting lists. That
  // costs it about as much as a few hundred rows. Over fp8 pages it takes longer by half.
  const std::int64_t places = (problem.tokens + multiprocessors - 1) / multiprocessors * multiprocessors;
  const bool long_lists = longest > 2048;
  const int percent = was_fp8 ? (long_lists ? 60 : 48) : (long_lists ? 90 : 75);
  return has_lists && problem.tokens * 100 >= places * percent;
}

void attention(const AttentionProblem& problem, int device, Stream stream) {
  if (problem.tokens == 0) return;
  DeviceScope scope(device);
  static FirstUse first_use;
  first_use.on(device, preload);
  Call call;
  call.problem = problem;
  call.wide_stores = takes_wide_stores(problem);
  for (int s = 0; s < problem.segment_count; ++s) call.rows[s] = row_map(problem.segments[s].store);
  call.q = row_map(problem.q, problem.heads, q_head_stride(problem), problem.tokens, q_token_stride(problem));
  const std::int64_t processors = properties(device).multiprocessors;
  const std::int64_t blocks = problem.tokens < processors ? problem.tokens : processors;
  launch(attend_single_queries, dim3(static_cast<unsigned>(blocks)), dim3(block_threads), sizeof(SharedMemory), stream,
         call);
}

void preload() { load_kernel(attend_single_queries, sizeof(SharedMemory)); }

}  // namespace raggedmla::gpu::sm90::single_query
