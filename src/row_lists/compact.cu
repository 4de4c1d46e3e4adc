// translate_topk on the GPU: lists that drop their holes. One warp keeps a row's entries together, in order: every lane
// looks one entry up, the lanes that hold a slot are counted by a vote, and each stores behind those before it.
//
// A dense list needs nothing else. In a ragged list a row begins where the rows before it end, and how long they get is
// only known once all their entries have been looked up:
//
//     up to 1,024 queries   one launch: blocks of 32 queries tell each other their totals through the counter area
//     beyond                two launches: count, then write (from then on as in kernels.cu)
#include "base/workspace.hpp"
#include "gpu/preload.hpp"
#include "gpu/runtime.hpp"
#include "row_lists/backends.hpp"
#include "row_lists/block_offsets.cuh"

namespace raggedmla::gpu {

namespace {

constexpr int lookups_in_flight = 16;  // per lane
constexpr int block_queries = 32;      // of the one-launch kernel
constexpr int most_blocks = 32;        // of the one-launch kernel: one lane each
constexpr std::int64_t most_queries = block_queries * most_blocks;

/// Calls `store(position, entry)` for the row's entries that are no holes and returns their number.
template <class List, class Store>
__device__ std::int64_t compact_row(const List& list, std::int64_t t, const Store& store) {
  const auto row = list.row(t);
  std::int64_t count = 0;
  for (std::int64_t first = 0; first < row.length; first += lookups_in_flight * warp_lanes) {
    std::int32_t entries[lookups_in_flight];
#pragma unroll
    for (int i = 0; i < lookups_in_flight; ++i) {
      const std::int64_t j = first + i * warp_lanes + lane_index();
      entries[i] = j < row.length ? list.entry(row, j) : -1;
    }
#pragma unroll
    for (int i = 0; i < lookups_in_flight; ++i) {
      const LaneMask kept = lanes_where(entries[i] >= 0);
      if (entries[i] >= 0) store(count + count_bits(kept & lanes_before()), entries[i]);
      count += count_bits(kept);
    }
  }
  return count;
}

template <class List>
__device__ std::int64_t count_row(const List& list, std::int64_t t) {
  return compact_row(list, t, [](std::int64_t, std::int32_t) {});
}

template <class List>
__device__ std::int64_t write_row(const List& list, const ListTarget& target, std::int64_t t, std::int64_t begin) {
  std::int32_t* destination = static_cast<std::int32_t*>(target.indices.data) + target.offset(t, begin);
  const std::int64_t step = target.step();
  return compact_row(list, t, [&](std::int64_t j, std::int32_t entry) { destination[j * step] = entry; });
}

__device__ std::int64_t global_warp() { return (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / warp_lanes; }
__device__ std::int64_t global_warps() { return std::int64_t{gridDim.x} * blockDim.x / warp_lanes; }

template <class List>
__global__ void __launch_bounds__(most_threads) compact_dense(List list, ListTarget target) {
  for (std::int64_t t = global_warp(); t < list.queries; t += global_warps()) {
    const std::int64_t length = write_row(list, target, t, 0);
    for (std::int64_t j = length + lane_index(); j < target.width; j += warp_lanes) target.indices.set(t, j, -1);
    if (target.lengths && lane_index() == 0) target.lengths.set(t, length);
  }
}

template <class List>
__global__ void __launch_bounds__(most_threads) count_rows(List list, std::int32_t* counts) {
  for (std::int64_t t = global_warp(); t < list.queries; t += global_warps()) {
    const std::int64_t count = count_row(list, t);
    if (lane_index() == 0) counts[t] = static_cast<std::int32_t>(count);
  }
}

template <class List>
__global__ void __launch_bounds__(most_threads)
    compact_counted(List list, ListTarget target, const std::int32_t* counts) {
  __shared__ OffsetStorage storage;
  BlockOffsets offsets(storage);
  const Share share = share_of_block(list.queries);
  if (blockIdx.x == 0 && threadIdx.x == 0) target.indptr.set(0, 0);
  offsets.skip(share.begin, [&](std::int64_t t) { return std::int64_t{counts[t]}; });
  for (std::int64_t tile = share.begin; tile < share.end; tile += blockDim.x) {
    const std::int64_t own_row = tile + threadIdx.x;
    const std::int64_t own_length = own_row < share.end ? counts[own_row] : 0;
    const std::int64_t own_begin = offsets.tile(own_length);
    if (own_row < share.end) {
      target.indptr.set(own_row + 1, own_begin + own_length);
      if (target.lengths) target.lengths.set(own_row, own_length);
    }
    const std::int64_t tile_end = smaller(tile + blockDim.x, share.end);
    for (std::int64_t t = tile + warp_index(); t < tile_end; t += blockDim.x / warp_lanes) {
      write_row(list, target, t, offsets.begin(static_cast<int>(t - tile)));
    }
  }
}

/// The counter area as compact_ragged uses it; zero before and after.
struct Arrivals {
  std::uint32_t tickets;
  std::uint32_t finished;
  std::uint32_t totals[most_blocks];  // a block's entries + 1; 0 = not yet known
};

/// The entries of the blocks before this one. A block waits only for blocks that took their ticket earlier and are
/// therefore running: no order of scheduling can make it wait forever. One warp calls this.
__device__ std::int64_t entries_before(Arrivals* arrivals, unsigned ticket, std::uint32_t own_total) {
  const unsigned lane = static_cast<unsigned>(lane_index());
  if (lane == 0) atomicExch(&arrivals->totals[ticket], own_total + 1);
  std::uint32_t published = 1;
  if (lane < ticket) {
    while ((published = atomicAdd(&arrivals->totals[lane], 0u)) == 0) {
    }
  }
  return warp_sum(static_cast<std::int64_t>(published - 1));
}

/// The last block to get here leaves the counters zero.
__device__ void leave(Arrivals* arrivals) {
  __threadfence();
  if (atomicAdd(&arrivals->finished, 1u) != gridDim.x - 1) return;
  for (std::uint32_t& total : arrivals->totals) total = 0;
  arrivals->tickets = 0;
  arrivals->finished = 0;
}

template <class List>
__global__ void __launch_bounds__(1024) compact_ragged(List list, ListTarget target, Arrivals* arrivals) {
  __shared__ std::int64_t lengths[block_queries], begins[block_queries];
  __shared__ unsigned ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(&arrivals->tickets, 1u);
  __syncthreads();
  const std::int64_t first = std::int64_t{ticket} * block_queries;
  const int queries = static_cast<int>(smaller(block_queries, list.queries - first));
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;
  for (int i = warp_index(); i < queries; i += warps) {
    const std::int64_t length = count_row(list, first + i);
    if (lane_index() == 0) lengths[i] = length;
  }
  __syncthreads();
  if (warp_index() == 0) {
    const int lane = lane_index();
    const std::int64_t length = lane < queries ? lengths[lane] : 0;
    const std::int64_t inclusive = warp_inclusive_sum(length), total = shuffle(inclusive, warp_lanes - 1);
    const std::int64_t begin = entries_before(arrivals, ticket, static_cast<std::uint32_t>(total)) + inclusive - length;
    if (lane < queries) {
      begins[lane] = begin;
      target.indptr.set(first + lane + 1, begin + length);
      if (target.lengths) target.lengths.set(first + lane, length);
    }
    if (lane == 0) {
      if (ticket == 0) target.indptr.set(0, 0);
      leave(arrivals);
    }
  }
  __syncthreads();
  for (int i = warp_index(); i < queries; i += warps) write_row(list, target, first + i, begins[i]);
}

/// Whether the totals of a block of queries fit a counter.
bool one_launch(const TranslatedList& list) {
  return list.queries <= most_queries && list.width < (std::int64_t{1} << 31) / block_queries;
}

}  // namespace

template <class List>
std::size_t emit_workspace_bytes(const List& list, const ListTarget& target) {
  if (!target.ragged()) return 0;
  return workspace_bytes_for(one_launch(list) ? 0 : static_cast<std::size_t>(list.queries) * sizeof(std::int32_t));
}

template <class List>
void emit(const List& list, const ListTarget& target, int device, const Workspace& workspace, Stream stream) {
  const Properties& properties = require_device(device);
  DeviceScope scope(device);
  const LaunchShape shape = shape_for(list.queries, properties);
  if (!target.ragged()) {
    if (list.queries > 0) launch(compact_dense<List>, shape.grid, shape.block, 0, stream, list, target);
  } else if (one_launch(list)) {
    static_assert(sizeof(Arrivals) <= counter_area_bytes);
    auto* arrivals = reinterpret_cast<Arrivals*>(workspace_counters(workspace));
    const std::int64_t blocks = list.queries > 0 ? (list.queries + block_queries - 1) / block_queries : 1;
    launch(compact_ragged<List>, dim3(static_cast<unsigned>(blocks)), dim3(1024), 0, stream, list, target, arrivals);
  } else {
    auto* counts = reinterpret_cast<std::int32_t*>(workspace_scratch(workspace));
    launch(count_rows<List>, shape.grid, shape.block, 0, stream, list, counts);
    launch(compact_counted<List>, shape.grid, shape.block, 0, stream, list, target,
           static_cast<const std::int32_t*>(counts));
  }
}

template std::size_t emit_workspace_bytes(const TranslatedList&, const ListTarget&);
template void emit(const TranslatedList&, const ListTarget&, int, const Workspace&, Stream);

void preload_compact_lists() {
  load_kernel(compact_dense<TranslatedList>);
  load_kernel(count_rows<TranslatedList>);
  load_kernel(compact_counted<TranslatedList>);
  load_kernel(compact_ragged<TranslatedList>);
}

}  // namespace raggedmla::gpu
