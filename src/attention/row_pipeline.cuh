// How the rows of a query's lists reach shared memory, ahead of the products at every step:
//
//     list entries     fetch    a batch of tiles, one entry a thread         global -> registers
//     row addresses    resolve  the same batch, a batch of tiles later       registers -> ring in shared memory
//     rows             copy     tile i + S - 1 while tile i is multiplied    global -> stage, asynchronous
//
// S stages; a batch is as many tiles as the block's threads can resolve at once (four as a rule). So the latency of a
// list entry hides behind a batch, that of its row behind S - 1 tiles, and a slot is divided into page and row once,
// by one thread, for all heads.
#pragma once

#include "attention/problem.hpp"
#include "attention/schedule.hpp"
#include "gpu/async_copy.cuh"
#include "gpu/fp8.cuh"
#include "gpu/warp.cuh"

namespace raggedmla::gpu {

/// Entries [begin, end) of a segment's span: what one block walks of it.
struct ListPart {
  RowSpan span;
  std::int64_t begin = 0, end = 0;
};
static_assert(sizeof(ListPart) == 40);

template <TileShape shape>
class RowPipeline {
 public:
  static constexpr int threads = shape.warps * warp_lanes;
  static constexpr int stage_bytes = shape.rows * row_tile::row_bytes;

  __device__ RowPipeline(const AttentionProblem& problem, std::byte* shared)
      : problem_(problem), shared_(shared), stages_(shared_address(shared)) {}

  /// Finds what split `split` of `splits` walks of query t, and gets the first tiles' slots. Ends with a barrier.
  /// Returns the number of parts that the query's lists are cut into.
  __device__ int begin(std::int64_t t, int split, int splits) {
    ListPart* parts = at<ListPart>(layout.parts);
    if (warp_index() == 0) {
      const int lane = lane_index();
      ListPart part;
      if (lane < problem_.segment_count) {
        const SegmentProblem& segment = problem_.segments[lane];
        part.span = segment.list.span(t, segment.store.rows);
      }
      std::int64_t before = 0, total = 0;
#pragma unroll
      for (int s = 0; s < AttentionProblem::max_segments; ++s) {
        const std::int64_t length = shuffle(part.span.length, s);
        if (s < lane) before += length;
        total += length;
      }
      const std::int64_t length = part_length(total, splits, shape.rows);
      const std::int64_t first = split * length - before;
      part.begin = clamp_index(first, 0, part.span.length);
      part.end = clamp_index(first + length, 0, part.span.length);
      if (lane < AttentionProblem::max_segments) parts[lane] = part;
      if (lane == 0) *at<int>(layout.factors) = static_cast<int>((total + length - 1) / length);
    }
    __syncthreads();
    const int part_count = *at<int>(layout.factors);
    tiles_ = 0;
    for (int s = 0; s < problem_.segment_count; ++s) {
      tiles_ += static_cast<int>((parts[s].end - parts[s].begin + shape.rows - 1) / shape.rows);
    }
    left_ = static_cast<int>(parts[0].end - parts[0].begin);
    fetch();
    resolve(0);
    fetch();
    __syncthreads();
    return part_count;
  }

  __device__ int tiles() const { return tiles_; }
  __device__ SharedAddress stage(int tile) const { return stages_ + (tile % shape.stages) * stage_bytes; }
  __device__ StoreKind store_kind(int tile) const {
    return static_cast<StoreKind>(at<int>(layout.store_kinds)[tile % ring]);
  }
  /// Bit i: row 16 * group + i of the tile holds a row of the list. All 16 bits are set in the inside of a valid list.
  __device__ std::uint32_t valid_rows(int tile, int group) const {
    return at<std::uint32_t>(layout.valid)[tile % ring * (shape.rows / 16) + group];
  }

  /// Before the products of a tile: if it is the first of its batch, resolves the batch after its own.
  __device__ void resolve_ahead(int tile) {
    if (tile % batch_tiles == 0 && tile + batch_tiles < tiles_) resolve(tile + batch_tiles);
  }
  /// After the products: fetches the batch after that.
  __device__ void fetch_ahead(int tile) {
    if (tile % batch_tiles == 0 && tile + batch_tiles < tiles_) fetch();
  }

  /// Starts the copies of a resolved tile's rows into its stage: bf16 rows to their place; fp8 rows, 576 bytes, to the
  /// end of theirs, where the 64 bf16 channels already stand right.
  __device__ void start_copy(int tile) {
    const std::uint64_t* addresses = at<std::uint64_t>(layout.addresses) + tile % ring * shape.rows;
    const int row = warp_index() * rows_of_warp, lane = lane_index();
    // All addresses first: no load from shared memory may pass a copy into it.
    std::uint64_t address[rows_of_warp];
#pragma unroll
    for (int i = 0; i < rows_of_warp; ++i) address[i] = addresses[row + i];
    copies_.begin();
    if (store_kind(tile) == StoreKind::bf16) {
      constexpr int copies_of_row = row_tile::chunks / warp_lanes;
      const SharedAddress first = stage(tile) + row_tile::offset(row, lane);
#pragma unroll
      for (int i = 0; i < rows_of_warp; ++i) {
#pragma unroll
        for (int k = 0; k < copies_of_row; ++k) {
          const SharedAddress target = row_tile::next_row(first, i) + static_cast<SharedAddress>(k * warp_lanes * 16);
          start_chunk(i * copies_of_row + k, target, address[i], lane + k * warp_lanes);
        }
      }
    } else {
      // The first 32 (or all 36) chunks of one row after another, and then what is left of all the warp's rows.
      constexpr int lead = fp8_chunks < warp_lanes ? fp8_chunks : warp_lanes, rest = fp8_chunks - lead;
      constexpr int first_chunk = row_tile::chunks - fp8_chunks;
      const SharedAddress first = stage(tile) + row_tile::offset(row, first_chunk + lane);
#pragma unroll
      for (int i = 0; i < rows_of_warp; ++i) {
        if (lane < lead) start_chunk(i, row_tile::next_row(first, i), address[i], lane);
      }
      if constexpr (rest > 0) {
        const int chunk = lead + lane % rest, last_row = row + lane / rest;
        if (lane < rest * rows_of_warp) {
          start_chunk(rows_of_warp, stage(tile) + row_tile::offset(last_row, first_chunk + chunk), addresses[last_row],
                      chunk);
        }
      }
    }
  }
  __device__ void commit() { copies_.commit(); }
  __device__ void land() { copies_.land(); }
  /// Waits for the copies of the tile that stands `stages - 2` tiles before the newest committed one.
  __device__ void wait() { copies_.template wait<shape.stages - 2>(); }
  __device__ void wait_all() { copies_.template wait<0>(); }

  /// Decodes an fp8 tile in place. The caller puts a barrier before the next use of the tile.
  __device__ void dequantise(int tile) {
    if (store_kind(tile) == StoreKind::fp8_ocp) {
      decode_rows<Fp8Encoding::ocp>(tile);
    } else {
      decode_rows<Fp8Encoding::fnuz>(tile);
    }
  }

  template <class T>
  __device__ T* at(int offset) const {
    return reinterpret_cast<T*>(shared_ + offset);
  }
  static constexpr TileLayout layout = layout_of(shape);
  static constexpr int ring = ring_tiles(shape);

 private:
  static constexpr int fp8_chunks = v4_row.data_bytes / 16;
  static constexpr int decode_rows_at_once = 1;
  static constexpr int copies_per_thread = shape.rows * row_tile::chunks / threads;
  static constexpr int rows_of_warp = shape.rows / shape.warps;
  static constexpr std::uint64_t absent = 1;  // flag in a row address: nothing to read, rows are 16-byte aligned
  // The rows of a batch are divided among the warps, whole tiles to one or several neighbouring warps.
  static constexpr int warps_of_tile = shape.rows > warp_lanes ? shape.rows / warp_lanes : 1;
  static constexpr int batch_tiles = shape.warps / warps_of_tile;
  static_assert(ring_tiles(shape) == 2 * batch_tiles && shape.stages <= batch_tiles);

  __device__ static int my_tile() { return warp_index() / warps_of_tile; }
  __device__ static int my_row() { return warp_index() % warps_of_tile * warp_lanes + lane_index(); }

  /// The list entries of the next batch start on their way into registers.
  __device__ void fetch() {
    const ListPart* parts = at<ListPart>(layout.parts);
    std::int64_t entry = 0;
#pragma unroll 1
    for (int tile = 0; tile < batch_tiles; ++tile) {
      while (left_ <= 0 && segment_ + 1 < problem_.segment_count) {
        ++segment_;
        left_ = static_cast<int>(parts[segment_].end - parts[segment_].begin);
      }
      if (tile == my_tile()) {
        pending_segment_ = segment_;
        pending_inside_ = my_row() < shape.rows && my_row() < left_;
        entry = parts[segment_].end - left_ + my_row();
      }
      left_ -= shape.rows;
    }
    if (pending_inside_) {
      pending_ = problem_.segments[pending_segment_].list.raw_entry(parts[pending_segment_].span, entry);
    }
  }

  /// Turns the entries fetched last, those of the batch that starts at `first_tile`, into addresses, and starts the
  /// copies of their scale records.
  __device__ void resolve(int first_tile) {
    const int slot_of_ring = (first_tile + my_tile()) % ring;
    const auto& [store, list] = problem_.segments[pending_segment_];
    const std::int64_t slot = pending_inside_ ? list.slot(pending_, store) : -1;
    const bool valid = slot >= 0;
    const LaneMask mask = lanes_where(valid);
    if (my_row() >= shape.rows) return;
    const int entry = slot_of_ring * shape.rows + my_row();
    const void* row = valid ? static_cast<const void*>(store.row(slot)) : problem_.q;
    at<std::uint64_t>(layout.addresses)[entry] = reinterpret_cast<std::uint64_t>(row) | (valid ? 0 : absent);
    if (store.kind != StoreKind::bf16) {
      const void* source = valid ? static_cast<const void*>(store.scales(slot)) : problem_.q;
      copy_8_bytes(stages_ + layout.scales + entry * 8, source, valid);
    }
    if (my_row() % 16 == 0) {
      at<std::uint32_t>(layout.valid)[slot_of_ring * (shape.rows / 16) + my_row() / 16] =
          static_cast<std::uint32_t>(mask >> lane_index()) & 0xFFFFu;
    }
    if (my_row() == 0) at<int>(layout.store_kinds)[slot_of_ring] = static_cast<int>(store.kind);
  }

  __device__ void start_chunk(int i, SharedAddress target, std::uint64_t row, int chunk) {
    const auto* source = reinterpret_cast<const std::uint8_t*>(row & ~absent) + chunk * 16;
    copies_.start(i, target, source, (row & absent) == 0);
  }

  /// A warp takes a row at a time: a lane turns 8 codes, 8 bytes in the row's last 576, into a 16-byte chunk. Codes at
  /// byte 448 + 8j become chunk j, so that a warp's chunks only overwrite codes that it has read.
  template <Fp8Encoding encoding>
  __device__ void decode_rows(int tile) {
    constexpr int chunks = v4_row.nope_width / 8;
    constexpr int steps = (chunks + warp_lanes - 1) / warp_lanes;
    constexpr int rows_at_once = decode_rows_at_once;
    constexpr int first_code_chunk = row_tile::chunks - fp8_chunks;
    const SharedAddress rows = stage(tile);
    const SharedAddress scales = stages_ + layout.scales + tile % ring * shape.rows * 8;
#pragma unroll 1
    for (int first = warp_index() * rows_at_once; first < shape.rows; first += shape.warps * rows_at_once) {
      Words<2> codes[rows_at_once][steps];
      std::uint8_t scale[rows_at_once][steps];
#pragma unroll
      for (int r = 0; r < rows_at_once; ++r) {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
          const int j = step * warp_lanes + lane_index();
          if (j >= chunks) continue;
          codes[r][step] =
              load_shared<Words<2>>(rows + row_tile::offset(first + r, first_code_chunk + j / 2) + j % 2 * 8);
          scale[r][step] = load_shared<std::uint8_t>(scales + (first + r) * 8 + j / 8);
        }
      }
      sync_warp();
#pragma unroll
      for (int r = 0; r < rows_at_once; ++r) {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
          const int j = step * warp_lanes + lane_index();
          if (j >= chunks) continue;
          std::uint32_t decoded[2][2];
          Fp8Decoder<encoding>::template decode<2>(codes[r][step].w, scale[r][step], decoded);
          store_shared(rows + row_tile::offset(first + r, j),
                       Words<4>{decoded[0][0], decoded[0][1], decoded[1][0], decoded[1][1]});
        }
      }
    }
  }

  const AttentionProblem& problem_;
  std::byte* shared_;
  SharedAddress stages_;
  AsyncCopies<copies_per_thread> copies_;
  int tiles_ = 0;
  int segment_ = 0;
  int left_ = 0;  // entries of the segment's part that were not fetched
  RawEntry pending_;
  int pending_segment_ = 0;
  bool pending_inside_ = false;
};

}  // namespace raggedmla::gpu
