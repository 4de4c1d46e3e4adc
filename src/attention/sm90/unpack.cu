// find_pages: which pages of a request's block table its queries read. One block per request and segment: the hull of
// the rows of all its queries, then the new table. Without it the unpacking would follow the length of the context, or
// of the table, and not the rows that the queries of this call read.
//
// The rows themselves are unpacked by the cache room's kernel (kv_cache/read_rows.cu).
#include "attention/sm90/unpack.hpp"
#include "gpu/dependent_launch.cuh"
#include "gpu/preload.hpp"
#include "gpu/warp.cuh"
#include "kv_cache/backends.hpp"

namespace raggedmla::gpu::sm90 {

namespace {

constexpr int block_threads = 512;

struct FindPages {
  struct Part {
    RowList list;
    std::int32_t* table;     // [requests, columns], new entries; null: nothing to do
    std::int32_t* in_order;  // [requests], see BlockTable
  };
  Part parts[AttentionProblem::max_segments];
  std::int64_t tokens;
};

/// Rows [low, high) of the request that the queries in this thread's share read.
__device__ void widen(const RowList& list, std::int64_t request, std::int64_t tokens, int& low, int& high) {
  constexpr int batch = 8;  // queries whose numbers are on their way together
  const std::int64_t rows = list.table.columns * list.table.rows_per_page;
  const std::int64_t begin = clamp_index(list.query_start(request), 0, tokens);
  const std::int64_t end = clamp_index(list.query_start(request + 1), 0, tokens);
  for (std::int64_t start = begin; start < end; start += batch * block_threads) {
    const auto steps = static_cast<int>((end - start + block_threads - 1) / block_threads);
    std::int64_t first[batch], count[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const std::int64_t t = start + i * block_threads + threadIdx.x;
      first[i] = t < end ? list.first.gather(t * list.first.stride0) : 0;
      count[i] = t < end ? list.count.gather(t * list.count.stride0) : 0;
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (i >= steps) break;
      const RowSpan span = list.range_span(first[i], count[i], request, rows);
      if (span.length <= 0) continue;
      const bool wraps = list.ring_rows > 0;  // its rows may be anywhere in the ring
      const std::int64_t last = wraps ? list.ring_rows : span.begin + span.length;
      low = min(low, wraps ? 0 : static_cast<int>(span.begin));
      high = max(high, static_cast<int>(last < rows ? last : rows));
    }
  }
}

/// Grid: (requests, segments).
__global__ void __launch_bounds__(block_threads) find_pages(const __grid_constant__ FindPages call) {
  __shared__ int low, high;
  let_kernel_behind_start();
  wait_for_kernel_in_front();
  const auto& [list, table, in_order] = call.parts[blockIdx.y];
  const BlockTable& pages = list.table;
  if (table == nullptr || blockIdx.x >= list.requests) return;
  if (threadIdx.x == 0) {
    low = 0x7FFFFFFF;
    high = 0;
  }
  __syncthreads();
  int mine_low = 0x7FFFFFFF, mine_high = 0;
  widen(list, blockIdx.x, call.tokens, mine_low, mine_high);
  mine_low = __reduce_min_sync(all_lanes, mine_low);
  mine_high = __reduce_max_sync(all_lanes, mine_high);
  if (lane_index() == 0 && mine_high > mine_low) {
    atomicMin(&low, mine_low);
    atomicMax(&high, mine_high);
  }
  __syncthreads();
  const int first = low / pages.rows_per_page, end = (high + pages.rows_per_page - 1) / pages.rows_per_page;
  bool missing = false;
  for (int column = static_cast<int>(threadIdx.x); column < pages.columns; column += block_threads) {
    const std::int64_t page = pages.entries(blockIdx.x, column);
    const int place = static_cast<int>(blockIdx.x * pages.columns) + column;
    const bool read = column >= first && column < end, there = page >= 0 && page < pages.pages;
    table[place] = read && there ? place : -1;
    missing |= read && !there;
  }
  missing = __syncthreads_or(missing) != 0;
  if (threadIdx.x == 0) in_order[blockIdx.x] = !missing;
}

}  // namespace

void unpack(const AttentionProblem& problem, const UnpackPlan& plan, const AttentionProblem& unpacked, int device,
            Stream stream) {
  const DeviceScope scope(device);
  FindPages search{};
  search.tokens = problem.tokens;
  std::int64_t requests = 0;
  for (int s = 0; s < problem.segment_count; ++s) {
    const BlockTable& table = unpacked.segments[s].list.table;
    if (plan.parts[s].rows == 0 || table.in_order == nullptr) continue;
    search.parts[s] = {problem.segments[s].list,
                       const_cast<std::int32_t*>(static_cast<const std::int32_t*>(table.entries.data)),
                       const_cast<std::int32_t*>(table.in_order)};
    if (table.requests > requests) requests = table.requests;
  }
  launch_dependent(find_pages, dim3(static_cast<unsigned>(requests), static_cast<unsigned>(problem.segment_count)),
                   dim3(block_threads), 0, stream, search);
  static_assert(AttentionProblem::max_segments <= UnpackProblem::most_parts);
  UnpackProblem rows[2];  // a launch for each encoding
  for (int s = 0; s < problem.segment_count; ++s) {
    if (plan.parts[s].rows == 0) continue;
    const SegmentProblem& segment = problem.segments[s];
    const std::int32_t* wanted = search.parts[s].table;
    rows[segment.store.kind == StoreKind::fp8_fnuz].add(
        {segment.store, wanted ? segment.list.table : BlockTable{}, wanted, unpacked.segments[s].store.data});
  }
  for (const UnpackProblem& encoding : rows) unpack_rows(encoding, device, stream);
}

void preload_unpack() { load_kernel(find_pages); }

}  // namespace raggedmla::gpu::sm90
