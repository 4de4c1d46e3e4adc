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
#include <array>
#include <atomic>

#include "attention/sm90/single_query_load.cuh"
#include "attention/sm90/single_query_output.cuh"
#include "attention/sm90/single_query_score.cuh"
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

/// Bytes between elements of a dimension; any legal number where there is one element only.
std::int64_t box_stride(std::int64_t size, std::int64_t bytes) { return size > 1 ? bytes : width * 2; }
/// Whether the copy engine takes it (it cannot repeat elements).
bool is_box_stride(std::int64_t bytes) { return bytes > 0 && bytes % 16 == 0 && bytes < (1ll << 40); }

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

bool multiple_of(std::int64_t value, std::int64_t n) { return value % n == 0; }

/// Loads the kernel on its first use on a device, so that a call needs no preload().
void require_loaded(int device) {
  static std::array<std::atomic<bool>, 64> loaded{};
  const auto at = static_cast<std::size_t>(device);
  if (at < loaded.size() && loaded[at].load(std::memory_order_acquire)) return;
  preload();
  if (at < loaded.size()) loaded[at].store(true, std::memory_order_release);
}

}  // namespace

bool takes(const AttentionProblem& problem, const Schedule& schedule) {
  if (schedule.splits > 1 || schedule.batch_invariant) return false;  // the choice of kernel depends on the batch
  if (problem.heads < 1 || problem.heads > max_heads || problem.segment_count < 1) return false;
  if (problem.tokens >= (1ll << 30)) return false;
  if (!is_box_stride(box_stride(problem.heads, problem.q_stride_head * 2)) ||
      !is_box_stride(box_stride(problem.tokens, problem.q_stride_token * 2))) {
    return false;
  }
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
  // Where query tiles overtake: 0.757 ms at overlap 0.5 and 0.544 at 0.8 against 0.663 (H 16, K 1152), 0.453 at 0.3 and
  // 0.354 at 0.5 against 0.389 (H 8, K 640). A tile of eight queries gains from less overlap than one of four.
  return has_lists && schedule.expected_overlap < (problem.heads > 8 ? 0.62f : 0.42f);
}

bool pays(const AttentionProblem& problem, int multiprocessors) {
  std::int64_t longest = 0;  // entries of a query's lists, about
  bool has_lists = false;
  for (int s = 0; s < problem.segment_count; ++s) {
    const RowList& list = problem.segments[s].list;
    if (list.kind == ListKind::range || problem.tokens == 0) continue;
    has_lists = true;
    longest += list.kind == ListKind::dense ? list.capacity : list.capacity / problem.tokens;
  }
  // The last round of queries leaves multiprocessors idle, which the portable kernel fills by splitting lists. That
  // costs it about as much as a few hundred rows.
  const std::int64_t places = (problem.tokens + multiprocessors - 1) / multiprocessors * multiprocessors;
  return has_lists && problem.tokens * 100 >= places * (longest > 2048 ? 90 : 75);
}

void attention(const AttentionProblem& problem, int device, Stream stream) {
  if (problem.tokens == 0) return;
  DeviceScope scope(device);
  require_loaded(device);
  Call call;
  call.problem = problem;
  const std::int64_t unit = problem.out_is_f32 ? 2 : 8, bytes = problem.out_is_f32 ? 8 : 16;
  call.wide_stores = multiple_of(reinterpret_cast<std::intptr_t>(problem.out), bytes) &&
                     multiple_of(problem.out_stride_token, unit) && multiple_of(problem.out_stride_head, unit);
  for (int s = 0; s < problem.segment_count; ++s) call.rows[s] = row_map(problem.segments[s].store);
  call.q = row_map(problem.q, problem.heads, problem.q_stride_head * 2, problem.tokens, problem.q_stride_token * 2);
  const std::int64_t processors = properties(device).multiprocessors;
  const std::int64_t blocks = problem.tokens < processors ? problem.tokens : processors;
  launch(attend_single_queries, dim3(static_cast<unsigned>(blocks)), dim3(block_threads), sizeof(SharedMemory), stream,
         call);
}

void preload() { load_kernel(attend_single_queries, sizeof(SharedMemory)); }

}  // namespace raggedmla::gpu::sm90::single_query
