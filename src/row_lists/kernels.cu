// Row lists on the GPU, for every list that keeps its holes (those that drop them are in compact.cu).
//
// The work is cut into segments of 16 entries per lane; a row has as many segments as its widest case needs, so that
// the cut depends on shapes only. A block owns a contiguous range of segments, a warp moves one at a time:
//
//     load the warp's first segment  -. in flight together
//     sum the lengths before the block |
//     scan the lengths of its rows   -'
//     store the segment where its row begins, go on with the next
#include "gpu/preload.hpp"
#include "gpu/runtime.hpp"
#include "row_lists/backends.hpp"
#include "row_lists/block_offsets.cuh"
#include "row_lists/segments.cuh"

namespace raggedmla::gpu {

namespace {

/// Finds where the tile's rows begin, one row per thread, and reports their lengths and ends.
template <class List>
__device__ void scan_tile(const List& list, const ListTarget& target, BlockOffsets& offsets, const Share& share,
                          std::int64_t segments, std::int64_t tile, bool first_tile) {
  const std::int64_t t = tile + threadIdx.x;
  const bool within = t * segments < share.end;
  const std::int64_t length = within ? list.row(t).length : 0;
  std::int64_t begin = 0;
  if (target.ragged()) {
    if (first_tile) offsets.skip(tile, [&](std::int64_t i) { return list.row(i).length; });
    begin = offsets.tile(length);
  }
  // A row that several blocks share is reported by the block that has its first segment.
  if (!within || t * segments < share.begin) return;
  if (target.ragged()) target.indptr.set(t + 1, begin + length);
  if (target.lengths) target.lengths.set(t, length);
}

template <class List, class Segment>
__global__ void __launch_bounds__(most_threads, 2) emit_rows(List list, ListTarget target) {
  __shared__ OffsetStorage storage;
  BlockOffsets offsets(storage);
  const bool ragged = target.ragged();
  const std::int64_t segments = row_segments(target.width, warp_lanes);
  const Share share = share_of_block(list.queries * segments);
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;

  if (ragged && blockIdx.x == 0 && threadIdx.x == 0) target.indptr.set(0, 0);
  const std::int64_t first_row = share.begin / segments;
  const std::int64_t end_row = (share.end + segments - 1) / segments;
  for (std::int64_t tile = first_row; tile < end_row; tile += blockDim.x) {
    const std::int64_t tile_end = smaller((tile + blockDim.x) * segments, share.end);
    bool scanned = false;
    for (std::int64_t item = (tile > first_row ? tile * segments : share.begin) + warp_index();; item += warps) {
      const std::int64_t t = segments == 1 ? item : item / segments;
      const std::int64_t first_entry = (item - t * segments) * segment_entries;
      std::int64_t end = target.width;
      Segment segment;
      if (item < tile_end) {
        const auto row = list.row(t);
        if (ragged) end = row.length;
        segment.load(list, row, first_entry);
      }
      if (!scanned) {
        scan_tile(list, target, offsets, share, segments, tile, tile == first_row);
        scanned = true;
      }
      if (item >= tile_end) break;
      const std::int64_t begin = ragged ? offsets.begin(static_cast<int>(t - tile)) : 0;
      segment.store(
          static_cast<std::int32_t*>(target.indices.data) + target.offset(t, begin) + first_entry * target.step(),
          target.step(), clamp_index(end - first_entry, 0, segment_entries));
    }
  }
}

template <class Range>
__global__ void emit_row_ranges(Range range, std::int64_t queries, RangeTarget target) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t t = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; t < queries; t += threads) {
    const RowRange rows = range(t);
    target.first.set(t, rows.first);
    target.count.set(t, rows.count);
  }
}

__global__ void __launch_bounds__(most_threads, 2) copy_list(GraphCopy copy) {
  const std::int64_t all = copy.covered();
  const std::int64_t words = copy.wide ? 2 * all : all;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / warp_lanes;
  const std::int64_t warps = std::int64_t{gridDim.x} * blockDim.x / warp_lanes;
  for (std::int64_t first = warp * segment_entries; first < words; first += warps * segment_entries) {
    const std::int64_t count = smaller(words - first, segment_entries);
    WordSegment segment;
    segment.load(static_cast<const std::int32_t*>(copy.source) + first, count);
    segment.store(static_cast<std::int32_t*>(copy.destination) + first, 1, count);
  }
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t t = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; t <= copy.destination_queries;
       t += threads) {
    copy.destination_indptr.set(t, copy.offset_of(t, all));
  }
}

}  // namespace

template <class List>
std::size_t emit_workspace_bytes(const List&, const ListTarget&) {
  return 0;
}

template <class List>
void emit(const List& list, const ListTarget& target, int device, const Workspace&, Stream stream) {
  const Properties& properties = require_device(device);
  DeviceScope scope(device);
  if (list.queries == 0 && !target.ragged()) return;
  const LaunchShape shape = shape_for(list.queries * row_segments(target.width, properties.lanes), properties);
  if constexpr (requires { list.packed(); }) {
    if (list.packed() && target.step() == 1) {
      launch(emit_rows<List, WordSegment>, shape.grid, shape.block, 0, stream, list, target);
      return;
    }
  }
  launch(emit_rows<List, EntrySegment<List>>, shape.grid, shape.block, 0, stream, list, target);
}

template <class Range>
void emit_ranges(const Range& range, std::int64_t queries, const RangeTarget& target, int device, Stream stream) {
  if (queries == 0) return;
  const Properties& properties = require_device(device);
  DeviceScope scope(device);
  const LaunchShape shape = shape_for((queries + properties.lanes - 1) / properties.lanes, properties);
  launch(emit_row_ranges<Range>, shape.grid, shape.block, 0, stream, range, queries, target);
}

void copy_to_graph_buffers(const GraphCopy& copy, int device, Stream stream) {
  const Properties& properties = require_device(device);
  DeviceScope scope(device);
  const std::int64_t entries = smaller(copy.source_capacity, copy.destination_capacity);
  const std::int64_t list_items = row_segments((copy.wide ? 2 : 1) * entries, properties.lanes);
  const std::int64_t indptr_items = (copy.destination_queries + properties.lanes) / properties.lanes;
  const LaunchShape shape = shape_for(list_items > indptr_items ? list_items : indptr_items, properties);
  launch(copy_list, shape.grid, shape.block, 0, stream, copy);
}

// ---- the kernels of this file --------------------------------------------------------------------------------------

template std::size_t emit_workspace_bytes(const DenseList&, const ListTarget&);
template std::size_t emit_workspace_bytes(const WindowList&, const ListTarget&);
template std::size_t emit_workspace_bytes(const CompressedList&, const ListTarget&);
template std::size_t emit_workspace_bytes(const CombinedList&, const ListTarget&);
template void emit(const DenseList&, const ListTarget&, int, const Workspace&, Stream);
template void emit(const WindowList&, const ListTarget&, int, const Workspace&, Stream);
template void emit(const CompressedList&, const ListTarget&, int, const Workspace&, Stream);
template void emit(const CombinedList&, const ListTarget&, int, const Workspace&, Stream);
template void emit_ranges(const WindowRange&, std::int64_t, const RangeTarget&, int, Stream);
template void emit_ranges(const CompressedRange&, std::int64_t, const RangeTarget&, int, Stream);

void preload_row_lists() {
  load_kernel(emit_rows<DenseList, WordSegment>);
  load_kernel(emit_rows<DenseList, EntrySegment<DenseList>>);
  load_kernel(emit_rows<WindowList, EntrySegment<WindowList>>);
  load_kernel(emit_rows<CompressedList, EntrySegment<CompressedList>>);
  load_kernel(emit_rows<CombinedList, EntrySegment<CombinedList>>);
  load_kernel(emit_row_ranges<WindowRange>);
  load_kernel(emit_row_ranges<CompressedRange>);
  load_kernel(copy_list);
}

}  // namespace raggedmla::gpu
