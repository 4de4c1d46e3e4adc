// Row lists on the GPU, for every list that keeps its holes (those that drop them are in compact.cu).
//
// A warp moves a segment of a row at a time, 16 entries per lane; a row has as many segments as its widest case needs,
// so that the cut depends on shapes only. Any list, emit_rows: a block owns a contiguous range of rows:
//
//     find the entries before the block    (block_offsets.cuh)
//     per tile of one row per thread: scan the lengths, then move the tile's segments
//
// Lengths of a dense list are a load away, so that blocks need not agree on anything: for few rows every warp adds up
// the lengths before its own (emit_few_rows), for some thousand every block scans them all (emit_swept_rows).
#include <concepts>

#include "gpu/preload.hpp"
#include "gpu/runtime.hpp"
#include "row_lists/backends.hpp"
#include "row_lists/block_offsets.cuh"
#include "row_lists/segments.cuh"

namespace raggedmla::gpu {

namespace {

/// What emit_few_rows takes: all sums fit 32 bits.
constexpr int few_rows = 512, few_rows_threads = 128;
constexpr std::int64_t most_columns_of_few_rows = 1 << 20;
/// What emit_swept_rows takes; all sums fit 32 bits.
constexpr int least_swept_rows = 2048, swept_rows = 8192;
constexpr int swept_threads = 512, swept_blocks = 2;  // of a multiprocessor
constexpr std::int64_t most_columns_of_swept_rows = 1 << 17;

/// Lengths of a dense list are a load away; those of other lists take a search through the requests.
template <class List>
constexpr bool cheap_lengths = std::same_as<List, DenseList>;

template <class Segment>
__device__ void store_segment(const Segment& segment, const ListTarget& target, std::int64_t t, std::int64_t begin,
                              std::int64_t length, std::int64_t first) {
  std::int32_t* row = static_cast<std::int32_t*>(target.indices.data) + target.offset(t, begin);
  const std::int64_t end = target.ragged() ? length : target.width;
  segment.store(row + first * target.step(), target.step(),
                static_cast<int>(clamp_index(end - first, 0, Segment::entries)));
}

template <class List, class Segment, class Offsets>
__global__ void __launch_bounds__(most_threads)
    emit_rows(List list, ListTarget target, std::int64_t rows_per_block, typename Offsets::State state) {
  __shared__ OffsetStorage storage;
  __shared__ typename List::Row rows[most_threads];
  static_assert(sizeof(storage) + sizeof(rows) <= 48 << 10, "what a launch may use without asking for more");
  Offsets offsets(storage, state);
  const bool ragged = target.ragged();
  const int segments = static_cast<int>(row_segments<Segment>(target.width, warp_lanes));
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;
  const std::int64_t first_row = blockIdx.x * rows_per_block;
  const std::int64_t end_row = smaller(first_row + rows_per_block, list.queries);

  int tile_row = warp_index() / segments, piece = warp_index() % segments;
  if (ragged && first_row == 0 && threadIdx.x == 0) target.indptr.set(0, 0);
  if (ragged) offsets.start(list, first_row, end_row, rows_per_block);
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
    const int rows_of_tile = static_cast<int>(smaller(blockDim.x, end_row - tile));
    const auto advance = [&] {
      tile_row += warps / segments;
      piece += warps % segments;
      if (piece >= segments) {
        piece -= segments;
        ++tile_row;
      }
    };
    const auto store = [&](const Segment& segment, std::int64_t first) {
      store_segment(segment, target, tile + tile_row, offsets.begin(tile_row), rows[tile_row].length, first);
    };
    while (tile_row < rows_of_tile) {
      const std::int64_t first = std::int64_t{piece} * Segment::entries;
      if (!ragged || first < rows[tile_row].length) {
        Segment segment;
        segment.load(list, rows[tile_row], first);
        store(segment, first);
      }
      advance();
    }
    tile_row -= rows_of_tile;
    __syncthreads();
  }
}

/// Entries of the rows before row t, of at most few_rows, known to all lanes of the warp.
__device__ int entries_before(const DenseList& list, int t) {
  const int width = static_cast<int>(list.width);
  if (!list.lengths) return t * width;
  const auto clamped = [width](int length) { return length < 0 ? 0 : (length > width ? width : length); };
  const auto* lengths = static_cast<const std::int32_t*>(list.lengths.data);
  const bool packed = !list.lengths.wide && list.lengths.stride0 == 1;
  int sum = 0;
  if (packed && reinterpret_cast<std::uintptr_t>(lengths) % sizeof(int4) == 0) {
    constexpr int loads = few_rows / (4 * warp_lanes);
    int4 fours[loads];
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const int four = lane_index() + i * warp_lanes;
      fours[i] = 4 * four + 4 <= t ? reinterpret_cast<const int4*>(lengths)[four] : make_int4(0, 0, 0, 0);
    }
    const int tail = t / 4 * 4 + lane_index();
    if (tail < t) sum = clamped(lengths[tail]);
#pragma unroll
    for (const int4& four : fours) sum += clamped(four.x) + clamped(four.y) + clamped(four.z) + clamped(four.w);
  } else {
    for (int i = lane_index(); i < t; i += warp_lanes) sum += static_cast<int>(list.row(i).length);
  }
  return warp_sum(sum);
}

/// Few rows whose lengths are a load away: a warp sums the lengths before its row by itself, while its segment is on
/// its way: whole, for its length is on the way too. Nothing is shared, nobody waits.
template <class List, class Segment>
__global__ void __launch_bounds__(few_rows_threads) emit_few_rows(List list, ListTarget target, int row_warps_log2) {
  const int warp = warp_index(), rows_of_block = few_rows_threads / warp_lanes >> row_warps_log2;
  const int t = static_cast<int>(blockIdx.y) * rows_of_block + (warp >> row_warps_log2);
  const int piece = (static_cast<int>(blockIdx.x) << row_warps_log2) + (warp & ((1 << row_warps_log2) - 1));
  if (t == 0 && piece == 0 && lane_index() == 0) target.indptr.set(0, 0);
  if (t >= list.queries) return;
  const int first = piece * Segment::entries;
  Segment segment;
  segment.load(list, list.whole_row(t), first);
  const int length = static_cast<int>(list.row(t).length), begin = entries_before(list, t);
  if (piece == 0 && lane_index() == 0) {
    target.indptr.set(t + 1, begin + length);
    if (target.lengths) target.lengths.set(t, length);
  }
  store_segment(segment, target, t, begin, length, first);
}

/// The lengths of rows [first, first + count), 0 behind the last row.
template <int count>
__device__ void load_lengths(const DenseList& list, int first, int rows, int (&lengths)[count]) {
  const auto* packed = static_cast<const std::int32_t*>(list.lengths.data) + first;
  if (list.lengths && !list.lengths.wide && list.lengths.stride0 == 1 && first + count <= rows &&
      reinterpret_cast<std::uintptr_t>(packed) % sizeof(int4) == 0) {
    const int width = static_cast<int>(list.width);
    int4 fours[count / 4];
#pragma unroll
    for (int i = 0; i < count / 4; ++i) fours[i] = reinterpret_cast<const int4*>(packed)[i];
#pragma unroll
    for (int i = 0; i < count / 4; ++i) {
      const int words[4] = {fours[i].x, fours[i].y, fours[i].z, fours[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) lengths[4 * i + j] = words[j] < 0 ? 0 : (words[j] > width ? width : words[j]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < count; ++i) lengths[i] = first + i < rows ? static_cast<int>(list.row(first + i).length) : 0;
}

/// Some thousand rows whose lengths are a load away: every block scans all lengths, so that it may take any rows, and
/// all blocks together sweep over the list from its beginning to its end, as a copy does; memory likes that better than
/// a range for every block. A warp's first segment is on its way during the scan, whole, for its length is not yet
/// known.
template <class Segment>
__global__ void __launch_bounds__(swept_threads, swept_blocks) emit_swept_rows(DenseList list, ListTarget target) {
  __shared__ __align__(16) int begins[swept_rows + 4];
  __shared__ int warp_sums[swept_threads / 32];
  const int segments = static_cast<int>(row_segments<Segment>(list.width, warp_lanes));
  const int rows = static_cast<int>(list.queries), items = rows * segments;
  const int warps = static_cast<int>(gridDim.x) * swept_threads / warp_lanes;
  int item = (static_cast<int>(blockIdx.x) * swept_threads + static_cast<int>(threadIdx.x)) / warp_lanes;
  Segment segment;
  if (item < items)
    segment.load(list, list.whole_row(item / segments), std::int64_t{item % segments} * Segment::entries);

  constexpr int thread_rows = swept_rows / swept_threads;
  const int first = static_cast<int>(threadIdx.x) * thread_rows;
  int lengths[thread_rows], sum = 0;
  load_lengths(list, first, rows, lengths);
#pragma unroll
  for (int i = 0; i < thread_rows; ++i) sum += lengths[i];
  const int inclusive = warp_inclusive_sum(sum);
  if (lane_index() == warp_lanes - 1) warp_sums[warp_index()] = inclusive;
  __syncthreads();
  const bool before = lane_index() < warp_index() && lane_index() < swept_threads / warp_lanes;
  int begin = warp_sum(before ? warp_sums[lane_index()] : 0) + inclusive - sum;
#pragma unroll
  for (int i = 0; i < thread_rows; i += 4) {
    int4 four;
    four.x = begin, begin += lengths[i];
    four.y = begin, begin += lengths[i + 1];
    four.z = begin, begin += lengths[i + 2];
    four.w = begin, begin += lengths[i + 3];
    *reinterpret_cast<int4*>(begins + first + i) = four;
  }
  if (threadIdx.x == swept_threads - 1) begins[swept_rows] = begin;
  __syncthreads();

  for (int t = static_cast<int>(blockIdx.x * swept_threads + threadIdx.x); t <= rows;
       t += static_cast<int>(gridDim.x) * swept_threads) {
    target.indptr.set(t, begins[t]);
    if (t < rows && target.lengths) target.lengths.set(t, begins[t + 1] - begins[t]);
  }
  for (bool loaded = true; item < items; item += warps, loaded = false) {
    const int row = item / segments, entry = item % segments * Segment::entries;
    const int length = begins[row + 1] - begins[row];
    if (entry >= length) continue;
    if (!loaded) segment.load(list, DenseList::Row{length, row * list.indices.stride0}, entry);
    store_segment(segment, target, row, begins[row], length, entry);
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

__global__ void __launch_bounds__(most_threads) copy_list(GraphCopy copy) {
  const std::int64_t all = copy.covered();
  const std::int64_t words = copy.wide ? 2 * all : all;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / warp_lanes;
  const std::int64_t warps = std::int64_t{gridDim.x} * blockDim.x / warp_lanes;
  using Segment = WordSegment<>;
  for (std::int64_t first = warp * Segment::entries; first < words; first += warps * Segment::entries) {
    const int count = static_cast<int>(smaller(words - first, Segment::entries));
    Segment segment;
    segment.load(static_cast<const std::int32_t*>(copy.source) + first, count);
    segment.store(static_cast<std::int32_t*>(copy.destination) + first, 1, count);
  }
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t t = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; t <= copy.destination_queries;
       t += threads) {
    copy.destination_indptr.set(t, copy.offset_of(t, all));
  }
}

template <class List>
bool needs_mail(const List& list, const ListTarget& target) {
  return target.ragged() && !cheap_lengths<List> && list.queries > few_rows;
}

/// A few warps a row, and rows a block where a row takes fewer warps than a block has. Little work is spread widely.
template <int vectors>
void launch_few_rows(const DenseList& list, const ListTarget& target, bool words, const Properties& device,
                     Stream stream) {
  using Words = WordSegment<vectors>;
  using Entries = EntrySegment<DenseList, Words::lane_entries>;
  const std::int64_t segments = row_segments<Words>(target.width, device.lanes);
  const int block_warps = few_rows_threads / device.lanes;
  int log2 = 0;
  while (1 << log2 < block_warps && 1 << log2 < segments) ++log2;
  const std::int64_t rows = block_warps >> log2, blocks = (list.queries + rows - 1) / rows;
  const dim3 grid(static_cast<unsigned>((segments + (1 << log2) - 1) >> log2),
                  static_cast<unsigned>(blocks > 0 ? blocks : 1));
  launch(words ? emit_few_rows<DenseList, Words> : emit_few_rows<DenseList, Entries>, grid, dim3(few_rows_threads), 0,
         stream, list, target, log2);
}
constexpr std::int64_t little_work = 1 << 18;  // entries

void launch_swept_rows(const DenseList& list, const ListTarget& target, bool words, const Properties& device,
                       Stream stream) {
  using Words = WordSegment<>;
  using Entries = EntrySegment<DenseList>;
  const std::int64_t items = list.queries * row_segments<Words>(list.width, device.lanes);
  const std::int64_t block_warps = swept_threads / device.lanes;
  const std::int64_t blocks =
      smaller((items + block_warps - 1) / block_warps, swept_blocks * std::int64_t{device.multiprocessors});
  launch(words ? emit_swept_rows<Words> : emit_swept_rows<Entries>, dim3(static_cast<unsigned>(blocks)),
         dim3(swept_threads), 0, stream, list, target);
}

template <class List, class Segment>
void launch_rows(const List& list, const ListTarget& target, const Properties& device, const Workspace& workspace,
                 Stream stream) {
  const std::int64_t segments = row_segments<Segment>(target.width, device.lanes);
  if constexpr (!cheap_lengths<List>) {
    if (needs_mail(list, target)) {
      const RowLaunch shape = launch_for_mail(list.queries, segments, list.width, device);
      return launch(emit_rows<List, Segment, MailedOffsets>, shape.grid, shape.block, 0, stream, list, target,
                    shape.rows_per_block, reinterpret_cast<Mailboxes*>(workspace_counters(workspace)));
    }
  }
  const RowLaunch shape = launch_for(list.queries, segments, device);
  launch(emit_rows<List, Segment, SummedOffsets>, shape.grid, shape.block, 0, stream, list, target,
         shape.rows_per_block, NoState{});
}

}  // namespace

template <class List>
std::size_t emit_workspace_bytes(const List& list, const ListTarget& target) {
  return needs_mail(list, target) ? workspace_bytes_for(0) : 0;
}

template <class List>
void emit(const List& list, const ListTarget& target, int device, const Workspace& workspace, Stream stream) {
  if (list.queries == 0 && !target.ragged()) return;
  const Properties& properties = require_device(device);
  DeviceScope scope(device);
  if constexpr (cheap_lengths<List>) {
    const bool words = list.packed() && target.step() == 1;
    if (list.queries <= few_rows && list.width <= most_columns_of_few_rows) {
      const bool little = list.queries * list.width <= little_work;
      return (little ? launch_few_rows<1> : launch_few_rows<4>)(list, target, words, properties, stream);
    }
    if (list.queries >= least_swept_rows && list.queries <= swept_rows && list.width <= most_columns_of_swept_rows) {
      return launch_swept_rows(list, target, words, properties, stream);
    }
    if (words) return launch_rows<List, WordSegment<>>(list, target, properties, workspace, stream);
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
  const std::int64_t list_items = row_segments<WordSegment<>>((copy.wide ? 2 : 1) * entries, properties.lanes);
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
  load_kernel(emit_rows<List, EntrySegment<List>, MailedOffsets>);
}
}  // namespace

void preload_row_lists() {
  load_kernel(emit_few_rows<DenseList, WordSegment<1>>);
  load_kernel(emit_few_rows<DenseList, WordSegment<4>>);
  load_kernel(emit_few_rows<DenseList, EntrySegment<DenseList, 4>>);
  load_kernel(emit_few_rows<DenseList, EntrySegment<DenseList, 16>>);
  load_kernel(emit_swept_rows<WordSegment<>>);
  load_kernel(emit_swept_rows<EntrySegment<DenseList>>);
  load_kernel(emit_rows<DenseList, WordSegment<>, SummedOffsets>);
  load_kernel(emit_rows<DenseList, EntrySegment<DenseList>, SummedOffsets>);
  preload_list<WindowList>();
  preload_list<CompressedList>();
  preload_list<CombinedList>();
  load_kernel(emit_row_ranges<WindowRange>);
  load_kernel(emit_row_ranges<CompressedRange>);
  load_kernel(copy_list);
}

}  // namespace raggedmla::gpu
