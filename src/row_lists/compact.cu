// translate_topk on the GPU: lists that drop their holes. A warp takes a piece of a row, a few entries per lane:
//
//     top-k entries  ->  entries of the block table  ->  votes: which are kept  ->  barrier: where they go  ->  stores
//
// All loads of a step are in flight before the next begins; the lanes of a warp hold neighbouring entries, so that the
// kept ones are stored together, in order.
//
// Dense: a block takes a row at a time. Ragged: a row begins where the rows before it end, and how long they get is
// only known once all their entries have been looked up: a block counts its rows, is told by the blocks before it where
// they begin (MailedOffsets), and writes them. Blocks with a piece per warp still have their entries then; others look
// theirs up again.
#include "base/workspace.hpp"
#include "gpu/preload.hpp"
#include "gpu/runtime.hpp"
#include "row_lists/backends.hpp"
#include "row_lists/block_offsets.cuh"

namespace raggedmla::gpu {

namespace {

constexpr int dense_threads = 512, resident_threads = 1024;  // of a block; at 64 registers on a multiprocessor

/// Entries that the warps of a block keep: two sets of counts, so that one barrier is enough for a step.
class KeptCounts {
 public:
  __device__ explicit KeptCounts(int (*counts)[most_warps]) : counts_(counts) {}

  /// Takes the number that each warp keeps. All threads of the block call it.
  __device__ void gather(int kept) {
    int* counts = counts_[turn_];
    turn_ ^= 1;
    if (lane_index() == 0) counts[warp_index()] = kept;
    __syncthreads();
    count_ = lane_index() < static_cast<int>(blockDim.x) / warp_lanes ? counts[lane_index()] : 0;
  }
  /// The sum over the first `warps` warps, none if negative.
  __device__ int of_first(int warps) const { return warp_sum(lane_index() < warps ? count_ : 0); }
  __device__ int of_all() const { return warp_sum(count_); }

 private:
  int (*counts_)[most_warps];
  int turn_ = 0, count_ = 0;
};

/// A warp's part of a row: lane l has entries l, l + lanes, ...
template <int lane_entries>
struct Piece {
  static constexpr int entries = lane_entries * warp_lanes;

  std::int32_t slots[lane_entries];  // -1: dropped
  LaneMask kept[lane_entries];       // by the lanes of the warp

  /// Looks up the entries of row t from `first` on. Returns the row's length.
  template <class List>
  __device__ std::int64_t look_up(const List& list, std::int64_t t, std::int64_t first) {
    // Any entry of the tensor may be loaded; which of them count is decided when the row is known.
    const auto topk = list.topk.row(t * list.topk.stride0 + first * list.topk.stride1);
    const std::int64_t room = list.width - first;
    decltype(topk.gather(0)) selected[lane_entries];
    if (room >= entries) {
#pragma unroll
      for (int i = 0; i < lane_entries; ++i) {
        selected[i] = topk.gather((lane_index() + i * warp_lanes) * topk.stride1);
      }
    } else {
#pragma unroll
      for (int i = 0; i < lane_entries; ++i) {
        const int j = lane_index() + i * warp_lanes;
        selected[i] = j < room ? topk.gather(j * topk.stride1) : -1;
      }
    }
    const auto row = list.row(t);
    const std::int64_t length = row.length - first;
    if (length < entries) {
#pragma unroll
      for (int i = 0; i < lane_entries; ++i) {
        if (lane_index() + i * warp_lanes >= length) selected[i] = -1;
      }
    }
    typename decltype(list.table)::Place places[lane_entries];
    decltype(list.table.page(0, places[0])) pages[lane_entries];
#pragma unroll
    for (int i = 0; i < lane_entries; ++i) {
      places[i] = list.table.place(selected[i]);
      pages[i] = list.table.page(row.table_begin, places[i]);
    }
#pragma unroll
    for (int i = 0; i < lane_entries; ++i) {
      slots[i] = list.table.slot(places[i], pages[i]);
      kept[i] = lanes_where(slots[i] >= 0);
    }
    return row.length;
  }

  __device__ int count() const {
    int sum = 0;
#pragma unroll
    for (const LaneMask mask : kept) sum += count_bits(mask);
    return sum;
  }

  __device__ void store(std::int32_t* destination, std::int64_t step) const {
    int position = 0;
#pragma unroll
    for (int i = 0; i < lane_entries; ++i) {
      if (slots[i] >= 0) destination[(position + count_bits(kept[i] & lanes_before())) * step] = slots[i];
      position += count_bits(kept[i]);
    }
  }
};

/// Steps between neighbouring entries of the output: 1 where lists are as engines have them.
template <class List>
__device__ std::int64_t step_of(const ListTarget& target) {
  return std::is_same_v<List, TranslatedList> ? target.step() : 1;
}

template <class List, int lane_entries>
__global__ void __launch_bounds__(dense_threads, resident_threads / dense_threads)
    compact_dense(List list, ListTarget target) {
  __shared__ int counts[2][most_warps];
  KeptCounts kept(counts);
  Piece<lane_entries> piece;
  const std::int64_t step = step_of<List>(target), block_entries = std::int64_t{blockDim.x} * lane_entries;
  for (std::int64_t t = blockIdx.x; t < list.queries; t += gridDim.x) {
    std::int32_t* destination = static_cast<std::int32_t*>(target.indices.data) + t * target.indices.stride0;
    std::int64_t written = 0, length = list.width;
    for (std::int64_t first = 0; first < length; first += block_entries) {
      length = piece.look_up(list, t, first + warp_index() * piece.entries);
      kept.gather(piece.count());
      piece.store(destination + (written + kept.of_first(warp_index())) * step, step);
      written += kept.of_all();
    }
    for (std::int64_t j = written + threadIdx.x; j < target.width; j += blockDim.x) destination[j * step] = -1;
    if (target.lengths && threadIdx.x == 0) target.lengths.set(t, written);
  }
}

/// Pieces of a row of `width` entries. At least one: its owner also reports where the row ends.
RAGGEDMLA_HOST_DEVICE std::int64_t row_pieces(std::int64_t width, std::int64_t entries) {
  return width > entries ? (width + entries - 1) / entries : 1;
}

template <class List, int lane_entries>
__global__ void __launch_bounds__(most_threads)
    compact_ragged(List list, ListTarget target, std::int64_t rows_per_block, Mailboxes* boxes) {
  __shared__ OffsetStorage storage;
  __shared__ int counts[2][most_warps];
  MailedOffsets offsets(storage, boxes);
  KeptCounts kept(counts);
  Piece<lane_entries> piece;
  const std::int64_t first_row = blockIdx.x * rows_per_block;
  const std::int64_t end_row = smaller(first_row + rows_per_block, list.queries);
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;
  const int pieces = static_cast<int>(row_pieces(list.width, piece.entries));
  const int all_pieces = static_cast<int>(end_row - first_row) * pieces;
  const auto look_up = [&](int index) {
    piece.look_up(list, first_row + index / pieces, std::int64_t{index % pieces} * piece.entries);
  };

  std::int64_t counted = 0;
  for (int index = warp_index(); index < all_pieces; index += warps) {
    look_up(index);
    counted += piece.count();
  }
  offsets.start_with(lane_index() == 0 ? counted : 0, [&](unsigned block) {
    std::int64_t sum = 0;
    for (std::int64_t t = block * rows_per_block; t < (block + 1) * rows_per_block; ++t) {
      const auto row = list.row(t);
      for (std::int64_t j = 0; j < row.length; ++j) sum += list.entry(row, j) >= 0;
    }
    return sum;
  });

  const std::int64_t step = step_of<List>(target);
  auto* indices = static_cast<std::int32_t*>(target.indices.data);
  if (first_row == 0 && threadIdx.x == 0) target.indptr.set(0, 0);
  std::int64_t begin = offsets.base(), row_begin = begin;  // of the tile, and of the row that reaches into it
  for (int tile = 0; tile < all_pieces; tile += warps) {
    const int index = tile + warp_index(), part = index % pieces;
    const bool own = index < all_pieces;
    if (own && all_pieces > warps) look_up(index);
    kept.gather(own ? piece.count() : 0);
    const std::int64_t place = begin + kept.of_first(warp_index());
    if (own) piece.store(indices + place * step, step);
    const bool ends_row = own && part == pieces - 1 && lane_index() == 0;
    const std::int64_t t = first_row + index / pieces;
    if (ends_row) target.indptr.set(t + 1, place + piece.count());
    if (target.lengths) {
      const int start = index - part;                           // of this warp's row
      const int next_start = (tile + warps) / pieces * pieces;  // of the next tile's first row
      const std::int64_t begun = start < tile ? row_begin : begin + kept.of_first(start - tile);
      if (ends_row) target.lengths.set(t, place + piece.count() - begun);
      if (next_start >= tile) row_begin = begin + kept.of_first(next_start - tile);
    }
    begin += kept.of_all();
  }
}

template <class List, int lane_entries>
void launch_dense(const List& list, const ListTarget& target, const Properties& device, Stream stream) {
  const std::int64_t warps = row_pieces(list.width, lane_entries * device.lanes);
  const std::int64_t threads = smaller(warps * device.lanes, dense_threads);
  const std::int64_t blocks = smaller(list.queries, resident_threads / threads * device.multiprocessors);
  launch(compact_dense<List, lane_entries>, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)),
         0, stream, list, target);
}

/// Whole rows by the block, a piece for every warp where they all fit the device at once.
RowLaunch ragged_shape(std::int64_t rows, std::int64_t width, int lane_entries, const Properties& device) {
  const std::int64_t blocks = smaller(smaller(device.multiprocessors, Mailboxes::most_blocks), rows > 0 ? rows : 1);
  const std::int64_t rows_per_block = (rows + blocks - 1) / blocks;
  const std::int64_t pieces = rows_per_block * row_pieces(width, lane_entries * device.lanes);
  const std::int64_t threads = clamp_index(pieces * device.lanes, 64, most_threads);
  if (rows_per_block > Mailboxes::largest_total / (width > 0 ? width : 1)) {
    return {dim3(1), dim3(static_cast<unsigned>(threads)), rows};
  }
  return {dim3(static_cast<unsigned>(rows > 0 ? (rows + rows_per_block - 1) / rows_per_block : 1)),
          dim3(static_cast<unsigned>(threads)), rows_per_block};
}

template <class List, int lane_entries>
void launch_ragged(const List& list, const ListTarget& target, const RowLaunch& shape, const Workspace& workspace,
                   Stream stream) {
  launch(compact_ragged<List, lane_entries>, shape.grid, shape.block, 0, stream, list, target, shape.rows_per_block,
         reinterpret_cast<Mailboxes*>(workspace_counters(workspace)));
}

/// Short pieces answer sooner, long ones cost less an entry if rows fill them.
constexpr int short_piece = 4, long_piece = 8;
constexpr std::int64_t little_work = 1 << 18;  // entries

template <class List>
void launch_compact(const List& list, const ListTarget& target, const Properties& device, const Workspace& workspace,
                    Stream stream) {
  const bool little = list.width <= short_piece * device.lanes || list.queries <= little_work / list.width;
  if (!target.ragged()) {
    return (little ? launch_dense<List, short_piece> : launch_dense<List, long_piece>)(list, target, device, stream);
  }
  const int lane_entries = little ? short_piece : long_piece;
  const RowLaunch shape = ragged_shape(list.queries, list.width, lane_entries, device);
  return (little ? launch_ragged<List, short_piece> : launch_ragged<List, long_piece>)(list, target, shape, workspace,
                                                                                       stream);
}

using UsualTranslatedList = TranslatedListOf<PackedInts>;

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
  if (list.usual() && target.step() == 1) {
    launch_compact(list.as_usual(), target, properties, workspace, stream);
  } else {
    launch_compact(list, target, properties, workspace, stream);
  }
}

template std::size_t emit_workspace_bytes(const TranslatedList&, const ListTarget&);
template void emit(const TranslatedList&, const ListTarget&, int, const Workspace&, Stream);

namespace {
template <class List>
void preload_list() {
  load_kernel(compact_dense<List, short_piece>);
  load_kernel(compact_dense<List, long_piece>);
  load_kernel(compact_ragged<List, short_piece>);
  load_kernel(compact_ragged<List, long_piece>);
}
}  // namespace

void preload_compact_lists() {
  preload_list<TranslatedList>();
  preload_list<UsualTranslatedList>();
}

}  // namespace raggedmla::gpu
