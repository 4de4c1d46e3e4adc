// Row lists on the GPU, for every list that keeps its holes (those that drop them are in compact.cu).
//
// A warp moves a segment of a row at a time, 16 entries per lane; a row has as many segments as its widest case needs,
// so that the cut depends on shapes only. A block owns a contiguous range of rows:
//
//     find the entries before the block    (block_offsets.cuh)
//     per tile of one row per thread: scan the lengths, then move the tile's segments
#include <concepts>

#include "gpu/preload.hpp"
#include "gpu/runtime.hpp"
#include "row_lists/backends.hpp"
#include "row_lists/block_offsets.cuh"
#include "row_lists/segments.cuh"

namespace raggedmla::gpu {

namespace {

template <class Segment>
__device__ void store_segment(const Segment& segment, const ListTarget& target, std::int64_t t, std::int64_t begin,
                              std::int64_t length, std::int64_t first) {
  std::int32_t* row = static_cast<std::int32_t*>(target.indices.data) + target.offset(t, begin);
  const std::int64_t end = target.ragged() ? length : target.width;
  segment.store(row + first * target.step(), target.step(),
                static_cast<int>(clamp_index(end - first, 0, segment_entries)));
}

template <class List, class Segment, class Offsets>
__global__ void __launch_bounds__(most_threads, 2)
    emit_rows(List list, ListTarget target, std::int64_t rows_per_block, typename Offsets::State state) {
  __shared__ OffsetStorage storage;
  __shared__ typename List::Row rows[most_threads];
  Offsets offsets(storage, state);
  const bool ragged = target.ragged();
  const int segments = static_cast<int>(row_segments(target.width, warp_lanes));
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;
  const std::int64_t first_row = offsets.block() * rows_per_block;
  const std::int64_t end_row = smaller(first_row + rows_per_block, list.queries);

  if (ragged && first_row == 0 && threadIdx.x == 0) target.indptr.set(0, 0);
  if (ragged) offsets.start(list, first_row, end_row);
  for (std::int64_t tile = first_row; tile < end_row; tile += blockDim.x) {
    const std::int64_t t = tile + threadIdx.x;
    typename List::Row row{};
    if (t < end_row) row = list.row(t);
    rows[threadIdx.x] = row;
    if (ragged) {
      const std::int64_t begin = offsets.tile(row.length);
      if (t < end_row) target.indptr.set(t + 1, begin + row.length);
    }
    if (t < end_row && target.lengths) target.lengths.set(t, row.length);
    __syncthreads();
    const std::int64_t items = smaller(blockDim.x, end_row - tile) * segments;
    int tile_row = warp_index() / segments, piece = warp_index() % segments;
    for (std::int64_t item = warp_index(); item < items; item += warps) {
      const std::int64_t first = std::int64_t{piece} * segment_entries;
      if (!ragged || first < rows[tile_row].length) {
        Segment segment;
        segment.load(list, rows[tile_row], first);
        store_segment(segment, target, tile + tile_row, offsets.begin(tile_row), rows[tile_row].length, first);
      }
      tile_row += warps / segments;
      piece += warps % segments;
      if (piece >= segments) {
        piece -= segments;
        ++tile_row;
      }
    }
    __syncthreads();
  }
}

/// Few rows whose lengths are a load away: a warp sums the lengths before its row by itself, while its segment is on
/// its way. Nothing is shared, nobody waits.
template <class List, class Segment>
__global__ void __launch_bounds__(most_threads) emit_few_rows(List list, ListTarget target) {
  const int segments = static_cast<int>(row_segments(target.width, warp_lanes));
  const int item = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / warp_lanes);
  const int t = item / segments, piece = item - t * segments;
  if (item == 0 && lane_index() == 0) target.indptr.set(0, 0);
  if (t >= list.queries) return;
  const std::int64_t first = std::int64_t{piece} * segment_entries;
  const typename List::Row row = list.row(t);
  Segment segment;
  segment.load(list, row, first);
  const std::int64_t begin = warp_sum(entries_of_rows(list, t, lane_index(), warp_lanes));
  if (piece == 0 && lane_index() == 0) {
    target.indptr.set(t + 1, begin + row.length);
    if (target.lengths) target.lengths.set(t, row.length);
  }
  store_segment(segment, target, t, begin, row.length, first);
}
constexpr std::int64_t few_rows = 512, most_segments_of_few_rows = 1 << 16;

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
    const int count = static_cast<int>(smaller(words - first, segment_entries));
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

/// Lengths of a dense list are a load away; those of other lists take a search through the requests.
template <class List>
constexpr bool cheap_lengths = std::same_as<List, DenseList>;

template <class List>
bool needs_arrivals(const List& list, const ListTarget& target) {
  return target.ragged() && !cheap_lengths<List> && list.queries > few_rows;
}

template <class List, class Segment>
void launch_rows(const List& list, const ListTarget& target, const Properties& device, const Workspace& workspace,
                 Stream stream) {
  const std::int64_t segments = row_segments(target.width, device.lanes);
  if constexpr (cheap_lengths<List>) {
    if (list.queries <= few_rows && segments <= most_segments_of_few_rows) {
      constexpr int threads = 128;
      const std::int64_t warps = threads / device.lanes;
      const std::int64_t blocks = list.queries > 0 ? (list.queries * segments + warps - 1) / warps : 1;
      return launch(emit_few_rows<List, Segment>, dim3(static_cast<unsigned>(blocks)), dim3(threads), 0, stream, list,
                    target);
    }
  }
  const RowLaunch shape = launch_for(list.queries, segments, device);
  if constexpr (!cheap_lengths<List>) {
    if (needs_arrivals(list, target)) {
      return launch(emit_rows<List, Segment, ArrivalOffsets>, shape.grid, shape.block, 0, stream, list, target,
                    shape.rows_per_block, reinterpret_cast<Arrivals*>(workspace_counters(workspace)));
    }
  }
  launch(emit_rows<List, Segment, SummedOffsets>, shape.grid, shape.block, 0, stream, list, target,
         shape.rows_per_block, NoState{});
}

}  // namespace

template <class List>
std::size_t emit_workspace_bytes(const List& list, const ListTarget& target) {
  return needs_arrivals(list, target) ? workspace_bytes_for(0) : 0;
}

template <class List>
void emit(const List& list, const ListTarget& target, int device, const Workspace& workspace, Stream stream) {
  if (list.queries == 0 && !target.ragged()) return;
  const Properties& properties = require_device(device);
  DeviceScope scope(device);
  if constexpr (requires { list.packed(); }) {
    if (list.packed() && target.step() == 1) {
      return launch_rows<List, WordSegment>(list, target, properties, workspace, stream);
    }
  }
  launch_rows<List, EntrySegment<List>>(list, target, properties, workspace, stream);
}

template <class Range>
void emit_ranges(const Range& range, std::int64_t queries, const RangeTarget& target, int device, Stream stream) {
  if (queries == 0) return;
  const Properties& properties = require_device(device);
  DeviceScope scope(device);
  const RowLaunch shape = launch_for((queries + properties.lanes - 1) / properties.lanes, 1, properties);
  launch(emit_row_ranges<Range>, shape.grid, shape.block, 0, stream, range, queries, target);
}

void copy_to_graph_buffers(const GraphCopy& copy, int device, Stream stream) {
  const Properties& properties = require_device(device);
  DeviceScope scope(device);
  const std::int64_t entries = smaller(copy.source_capacity, copy.destination_capacity);
  const std::int64_t list_items = row_segments((copy.wide ? 2 : 1) * entries, properties.lanes);
  const std::int64_t indptr_items = (copy.destination_queries + properties.lanes) / properties.lanes;
  const RowLaunch shape = launch_for(list_items > indptr_items ? list_items : indptr_items, 1, properties);
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

namespace {
template <class List>
void preload_list() {
  load_kernel(emit_rows<List, EntrySegment<List>, SummedOffsets>);
  load_kernel(emit_rows<List, EntrySegment<List>, ArrivalOffsets>);
}
}  // namespace

void preload_row_lists() {
  load_kernel(emit_few_rows<DenseList, WordSegment>);
  load_kernel(emit_few_rows<DenseList, EntrySegment<DenseList>>);
  load_kernel(emit_rows<DenseList, WordSegment, SummedOffsets>);
  load_kernel(emit_rows<DenseList, EntrySegment<DenseList>, SummedOffsets>);
  preload_list<WindowList>();
  preload_list<CompressedList>();
  preload_list<CombinedList>();
  load_kernel(emit_row_ranges<WindowRange>);
  load_kernel(emit_row_ranges<CompressedRange>);
  load_kernel(copy_list);
}

}  // namespace raggedmla::gpu
