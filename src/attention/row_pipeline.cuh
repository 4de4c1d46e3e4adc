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

#include "attention/list_parts.cuh"
#include "attention/schedule.hpp"
#include "gpu/async_copy.cuh"
#include "gpu/fp8.cuh"
#include "gpu/warp.cuh"

namespace raggedmla::gpu {

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
      const int count = cut_lists(problem_, t, split, splits, shape.rows, parts);
      if (lane_index() == 0) *at<int>(layout.factors) = count;
    }
    __syncthreads();
    const int part_count = *at<int>(layout.factors);
    tiles_ = tiles_of(parts, problem_.segment_count, shape.rows);
    left_ = static_cast<int>(parts[0].end - parts[0].begin);
    fetch();
    resolve(0);
    __syncthreads();
    return part_count;
  }
  /// Once the first tiles' copies are under way.
  __device__ void fetch_second_batch() {
    if (!shape.fetch_late) fetch();
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

  /// Before the products of a tile: if the first copy of the next batch follows in the next iteration, resolves it.
  __device__ void resolve_ahead(int tile) {
    if (!shape.fetch_late && batch_begins(tile + shape.stages)) resolve(tile + shape.stages);
  }
  /// After the products of the same tile: fetches the batch after that.
  __device__ void fetch_ahead(int tile) {
    if (!shape.fetch_late && batch_begins(tile + shape.stages)) fetch();
  }
  /// For the ablation of the bench: both at once, when the tile's rows are about to be copied.
  __device__ void fetch_now(int tile) {
    if (!batch_begins(tile)) return;
    fetch();
    resolve(tile);
  }
  /// For the ablation of the bench: sets absent rows, which are zero already, to zero.
  __device__ void mask(int tile) {
    for (int i = 0; i < rows_of_warp; ++i) {
      const int row = first_row() + i;
      const bool valid = valid_rows(tile, row / 16) >> row % 16 & 1;
      for (int chunk = lane_index(); chunk < row_tile::chunks; chunk += warp_lanes) {
        const SharedAddress place = stage(tile) + row_tile::offset(row, chunk);
        const Words<4> channels = load_shared<Words<4>>(place);
        store_shared(place, valid ? channels : Words<4>{});
      }
    }
  }

  /// Starts the copies of a resolved tile's rows, if there is such a tile, into its stage: bf16 rows to their place;
  /// fp8 rows, 576 bytes, to the end of theirs, where the 64 bf16 channels already stand right.
  __device__ void start_copy(int tile) {
    copies_.begin();
    if (tile >= tiles_) return;
    std::uint32_t valid = 0xFFFFu;
#pragma unroll
    for (int group = 0; group < shape.rows / 16; ++group) valid &= valid_rows(tile, group);
    if (store_kind(tile) == StoreKind::bf16) {
      if (valid == 0xFFFFu) {
        copy_bf16_rows<true>(tile);
      } else {
        copy_bf16_rows<false>(tile);
      }
    } else {
      copy_fp8_rows(tile);
    }
  }
  __device__ void commit() { copies_.commit(); }
  __device__ void land() { copies_.land(); }
  /// Waits for the copies of the tile that stands `stages - 2` tiles before the newest committed one.
  __device__ void wait() { copies_.template wait<shape.stages - 2>(); }
  __device__ void wait_all() { copies_.template wait<0>(); }

  /// Decodes an fp8 tile in place: each warp the rows whose copies it started and has waited for. The caller puts a
  /// barrier before the next use of the tile, and before the first tile's one, for scale records, which others copied.
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
  static constexpr int copies_per_thread = shape.rows * row_tile::chunks / threads;
  static constexpr int rows_of_warp = shape.rows / shape.warps;
  // The rows of a batch are divided among the warps, whole tiles to one or several neighbouring warps.
  static constexpr int warps_of_tile = shape.rows > warp_lanes ? shape.rows / warp_lanes : 1;
  static constexpr int batch_tiles = gpu::batch_tiles(shape);
  static_assert(ring_tiles(shape) == batch_tiles + shape.stages && shape.stages <= batch_tiles);
  static_assert(rows_of_warp % 2 == 0);  // decode_rows

  __device__ bool batch_begins(int tile) const { return tile % batch_tiles == 0 && tile < tiles_; }

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
    const void* zeros = zero_row;
    at<const void*>(layout.addresses)[entry] = valid ? store.row(slot) : zeros;
    if (store.kind != StoreKind::bf16) {
      copy_8_bytes(stages_ + layout.scales + entry * 8, valid ? store.scales(slot) : zeros);
    }
    if (my_row() % 16 == 0) {
      at<std::uint32_t>(layout.valid)[slot_of_ring * (shape.rows / 16) + my_row() / 16] =
          static_cast<std::uint32_t>(mask >> lane_index()) & 0xFFFFu;
    }
    if (my_row() == 0) at<int>(layout.store_kinds)[slot_of_ring] = static_cast<int>(store.kind);
  }

  /// The addresses of this lane's chunk in the warp's rows. They are read before the first copy: no load from shared
  /// memory may pass a copy into it.
  __device__ void read_addresses(int tile, const std::uint8_t* (&address)[rows_of_warp]) const {
    const std::uint8_t* const* addresses = at<const std::uint8_t*>(layout.addresses) + tile % ring * shape.rows;
#pragma unroll
    for (int i = 0; i < rows_of_warp; ++i) address[i] = addresses[first_row() + i];
  }
  __device__ static int first_row() { return warp_index() * rows_of_warp; }
  __device__ static bool is_row(const std::uint8_t* address) {
    return address != reinterpret_cast<const std::uint8_t*>(zero_row);
  }

  template <bool all_valid>
  __device__ void copy_bf16_rows(int tile) {
    constexpr int copies_of_row = row_tile::chunks / warp_lanes;
    const SharedAddress first = stage(tile) + row_tile::offset(first_row(), lane_index());
    const std::uint8_t* address[rows_of_warp];
    read_addresses(tile, address);
#pragma unroll
    for (int i = 0; i < rows_of_warp; ++i) {
#pragma unroll
      for (int k = 0; k < copies_of_row; ++k) {
        const int further = k * warp_lanes * 16;
        copies_.start(i * copies_of_row + k, row_tile::next_row(first, i) + further,
                      address[i] + lane_index() * 16 + further, all_valid || is_row(address[i]));
      }
    }
  }

  /// The first 32 (or all 36) chunks of one row after another, and then what is left of all the warp's rows.
  __device__ void copy_fp8_rows(int tile) {
    constexpr int lead = fp8_chunks < warp_lanes ? fp8_chunks : warp_lanes, rest = fp8_chunks - lead;
    constexpr int first_chunk = row_tile::chunks - fp8_chunks;
    const int lane = lane_index();
    const SharedAddress first = stage(tile) + row_tile::offset(first_row(), first_chunk + lane);
    const std::uint8_t* address[rows_of_warp];
    read_addresses(tile, address);
    const int rest_row = first_row() + (rest > 0 ? lane / (rest > 0 ? rest : 1) : 0);
    const int rest_chunk = lead + (rest > 0 ? lane % (rest > 0 ? rest : 1) : 0);
    const bool has_rest = lane < rest * rows_of_warp;
    const std::uint8_t* rest_address =
        has_rest ? at<const std::uint8_t*>(layout.addresses)[tile % ring * shape.rows + rest_row] : nullptr;
#pragma unroll
    for (int i = 0; i < rows_of_warp; ++i) {
      if (lane < lead) copies_.start(i, row_tile::next_row(first, i), address[i] + lane * 16, is_row(address[i]));
    }
    if (has_rest) {
      copies_.start(rows_of_warp, stage(tile) + row_tile::offset(rest_row, first_chunk + rest_chunk),
                    rest_address + rest_chunk * 16, is_row(rest_address));
    }
  }

  /// A lane turns 16 codes of a row, from the row's last 576 bytes, into two 16-byte chunks; a warp takes the rows that
  /// it copied, two at a time, and has read all codes of both before it overwrites them. Of the two rows, lanes 4 to 7
  /// of every eight take the second one first: so eight lanes at a time reach all banks.
  template <Fp8Encoding encoding>
  __device__ void decode_rows(int tile) {
    using Decoder = Fp8Decoder<encoding>;
    constexpr int lanes_of_row = v4_row.nope_width / 16;
    constexpr int first_code_chunk = row_tile::chunks - fp8_chunks;
    const int lane = lane_index() < lanes_of_row ? lane_index() : 0;  // the lanes behind repeat what the first one does
    const int late = lane >> 2 & 1;
    const SharedAddress rows = stage(tile) + first_row() * row_tile::row_bytes;
    const SharedAddress from = rows + row_tile::offset(late, first_code_chunk + lane);
    const SharedAddress to = rows + row_tile::offset(late, 2 * lane);
    const int other = late ? -row_tile::row_bytes : row_tile::row_bytes;
    SharedAddress scales = stages_ + layout.scales + (tile % ring * shape.rows + first_row() + late) * 8 + lane / 4;
    sync_warp();  // the copies of all lanes are there
#pragma unroll 1
    for (int i = 0; i < rows_of_warp; i += 2, scales += 16) {
      Words<4> codes[2];
      codes[0] = load_shared<Words<4>>(row_tile::next_row(from, i));
      codes[1] = load_shared<Words<4>>((row_tile::next_row(from, i) ^ 16u) + other);
      std::uint8_t scale[2];
      scale[0] = load_shared<std::uint8_t>(scales);
      scale[1] = load_shared<std::uint8_t>(scales + (late ? -8 : 8));
      sync_warp();
      const bool plain = Decoder::are_plain(codes[0].w, scale[0]) && Decoder::are_plain(codes[1].w, scale[1]);
      const auto decode_row = [&](int r, auto decode_word) {
        std::uint32_t out[4][2];
#pragma unroll
        for (int word = 0; word < 4; ++word) decode_word(codes[r].w[word], out[word]);
        const SharedAddress place = r == 0 ? row_tile::next_row(to, i) : (row_tile::next_row(to, i) ^ 16u) + other;
        store_shared(place, Words<4>{{out[0][0], out[0][1], out[1][0], out[1][1]}});
        store_shared(place ^ 16u, Words<4>{{out[2][0], out[2][1], out[3][0], out[3][1]}});
      };
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (plain) {
          const std::uint32_t factor = Decoder::factor(scale[r]);
          decode_row(r, [&](std::uint32_t word, auto& out) { Decoder::decode_plain(word, factor, out); });
        } else {
          decode_row(r, [&](std::uint32_t word, auto& out) { Decoder::decode_careful(word, scale[r], out); });
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
