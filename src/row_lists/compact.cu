// translate_topk on the GPU: lists that drop their holes. One warp keeps a row's entries together, in order: every lane
// looks one entry up, the lanes that hold a slot are counted by a vote, and each stores behind those before it.
//
// A dense list needs nothing else. In a ragged list a row begins where the rows before it end, and how long they get is
// only known once all their entries have been looked up: a block counts its rows, learns from the blocks before it
// where they begin (ArrivalOffsets), and looks the entries up again, now from its cache, to write them.
#include "base/workspace.hpp"
#include "gpu/preload.hpp"
#include "gpu/runtime.hpp"
#include "row_lists/backends.hpp"
#include "row_lists/block_offsets.cuh"

namespace raggedmla::gpu {

namespace {

constexpr int lookups_in_flight = 16;  // per lane

/// Calls `store(position, entry)` for the row's entries that are no holes and returns their number.
template <class List, class Store>
__device__ std::int64_t compact_entries(const List& list, const typename List::Row& row, const Store& store) {
  std::int64_t count = 0;
  for (std::int64_t first = 0; first < row.length; first += lookups_in_flight * warp_lanes) {
    std::int32_t entries[lookups_in_flight];
#pragma unroll
    for (int i = 0; i < lookups_in_flight; ++i) {
      const std::int64_t j = first + i * warp_lanes + lane_index();
      entries[i] = list.entry(row, smaller(j, row.length - 1));
      if (j >= row.length) entries[i] = -1;
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

template <class List, class Store>
__device__ std::int64_t compact_row(const List& list, std::int64_t t, const Store& store) {
  const auto row = list.row(t);
  return list.usual() ? compact_entries(list.as_usual(), row, store) : compact_entries(list, row, store);
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
__global__ void __launch_bounds__(most_threads, 2)
    compact_ragged(List list, ListTarget target, std::int64_t rows_per_block, Arrivals* arrivals) {
  __shared__ OffsetStorage storage;
  ArrivalOffsets offsets(storage, arrivals);
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;
  const std::int64_t first_row = offsets.block() * rows_per_block;
  const std::int64_t end_row = smaller(first_row + rows_per_block, list.queries);

  // indptr holds the lengths of the block's rows until it is known where they begin.
  if (first_row == 0 && threadIdx.x == 0) target.indptr.set(0, 0);
  std::int64_t counted = 0;
  for (std::int64_t t = first_row + warp_index(); t < end_row; t += warps) {
    const std::int64_t length = count_row(list, t);
    if (lane_index() == 0) target.indptr.set(t + 1, length);
    counted += lane_index() == 0 ? length : 0;
  }
  offsets.start_with(counted);
  for (std::int64_t tile = first_row; tile < end_row; tile += blockDim.x) {
    const std::int64_t own = tile + threadIdx.x;
    const std::int64_t length = own < end_row ? target.indptr(own + 1) : 0;
    const std::int64_t begin = offsets.tile(length);
    if (own < end_row) {
      target.indptr.set(own + 1, begin + length);
      if (target.lengths) target.lengths.set(own, length);
    }
    const std::int64_t tile_end = smaller(tile + blockDim.x, end_row);
    for (std::int64_t t = tile + warp_index(); t < tile_end; t += warps) {
      write_row(list, target, t, offsets.begin(static_cast<int>(t - tile)));
    }
    __syncthreads();
  }
}

}  // namespace

template <class List>
std::size_t emit_workspace_bytes(const List&, const ListTarget& target) {
  return target.ragged() ? workspace_bytes_for(0) : 0;
}

template <class List>
void emit(const List& list, const ListTarget& target, int device, const Workspace& workspace, Stream stream) {
  if (list.queries == 0 && !target.ragged()) return;
  const Properties& properties = require_device(device);
  DeviceScope scope(device);
  const RowLaunch shape = launch_for(list.queries, 1, properties);
  if (target.ragged()) {
    launch(compact_ragged<List>, shape.grid, shape.block, 0, stream, list, target, shape.rows_per_block,
           reinterpret_cast<Arrivals*>(workspace_counters(workspace)));
  } else {
    launch(compact_dense<List>, shape.grid, shape.block, 0, stream, list, target);
  }
}

template std::size_t emit_workspace_bytes(const TranslatedList&, const ListTarget&);
template void emit(const TranslatedList&, const ListTarget&, int, const Workspace&, Stream);

void preload_compact_lists() {
  load_kernel(compact_dense<TranslatedList>);
  load_kernel(compact_ragged<TranslatedList>);
}

}  // namespace raggedmla::gpu
