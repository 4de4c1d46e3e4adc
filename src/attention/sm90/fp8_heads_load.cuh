// The loading warpgroup: looks list entries up, has raw rows copied and decodes them into the tiles. Warp w owns rows
// 16w to 16w + 15 of every tile, in batches of four rows, and needs no other warp:
//
//     look up   32 rows, two tiles at a time: entry -> (a pair of tiles later) address, scale record on its way
//     copy      a tile ahead, asynchronously
//     decode    landing place -> registers -> tile
#pragma once

#include "attention/sm90/fp8_heads_shared.cuh"
#include "gpu/async_copy.cuh"
#include "gpu/fp8.cuh"
#include "gpu/shared_memory.cuh"

namespace raggedmla::gpu::sm90::fp8_heads {

class Loader {
 public:
  __device__ Loader(const AttentionProblem& problem, SharedMemory& shared, int tiles)
      : problem_(problem), shared_(shared), tiles_(tiles), warp_(warp_index() % load_warps), lane_(lane_index()) {
    landing_ = opaque(shared_address(shared_.landing[warp_]));
    scales_ = opaque(shared_address(shared_.scales[warp_]));
  }

  __device__ void run() {
    left_ = static_cast<int>(shared_.parts[0].end - shared_.parts[0].begin);
    fetch();
    resolve(0);
    for (int batch = 0; batch < batches_of_tile; ++batch) {
      start_batch(0, batch);
      end_of_batch();
    }
    fetch();
    RingPosition<stages> at;
#pragma unroll 1
    for (int tile = 0; tile < tiles_; ++tile, at.advance()) {
      if (tile % 2 == 0) decoding_ = started_;
      random_delay(1);
      if (tile == stages - 1) shared_.q_taken.wait(0);
      shared_.tile_empty[at.index].wait(at.parity ^ 1);
      const std::uint32_t valid = decoding_.valid >> (tile % 2 * rows_of_warp);
      if (lane_ == 0) shared_.valid[at.index][warp_] = static_cast<std::uint16_t>(valid);
      if (decoding_.fnuz >> (tile % 2 * rows_of_warp) & 1) {
        decode_tile<Fp8Encoding::fnuz>(tile, at.index);
      } else {
        decode_tile<Fp8Encoding::ocp>(tile, at.index);
      }
      fence_async_proxy();
      arrive_as_warp(shared_.tile_full[at.index]);
    }
  }

 private:
  static constexpr int row_bytes = v4_row.data_bytes, code_chunks = v4_row.nope_width / 16;
  static constexpr int batch_bytes = batch_rows * landing_pitch;

  /// Keeps the compiler from computing an address anew wherever it is used.
  __device__ static SharedAddress opaque(SharedAddress address) {
    asm volatile("" : "+r"(address));
    return address;
  }

  // ---- lists: lane l looks up row l % 16 of tile l / 16 of a pair --------------------------------------------------

  /// The list entries of the next pair of tiles start on their way.
  __device__ void fetch() {
    std::int64_t entry = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      while (left_ <= 0 && segment_ + 1 < problem_.segment_count) {
        ++segment_;
        left_ = static_cast<int>(shared_.parts[segment_].end - shared_.parts[segment_].begin);
      }
      const int row = warp_ * rows_of_warp + lane_ % rows_of_warp;
      if (i == lane_ / rows_of_warp) {
        pending_segment_ = segment_;
        pending_inside_ = row < left_;
        entry = shared_.parts[segment_].end - left_ + row;
      }
      left_ -= tile_rows;
    }
    if (pending_inside_) {
      pending_ = problem_.segments[pending_segment_].list.raw_entry(shared_.parts[pending_segment_].span, entry);
    }
  }

  /// Turns the entries fetched last into addresses; the scale records start on their way.
  __device__ void resolve(int pair) {
    const auto& [store, list] = problem_.segments[pending_segment_];
    const std::int64_t slot = pending_inside_ ? list.slot(pending_, store) : -1;
    started_.valid = lanes_where(slot >= 0);
    started_.fnuz = lanes_where(store.kind == StoreKind::fp8_fnuz);
    const SharedAddress record = scales_ + (pair % 2 * 2 * rows_of_warp + lane_) * 8;
    if (slot >= 0) {
      address_ = store.row(slot);
      copy_8_bytes(record, store.scales(slot));
    } else {
      address_ = store.data;  // nothing is read
      store_shared(record, Words<2>{{0x7F7F7F7Fu, 0x7F7F7F7Fu}});
    }
  }

  // ---- rows --------------------------------------------------------------------------------------------------------

  /// Starts the copies of a batch of a tile, a group of asynchronous copies. Absent rows become zeros.
  __device__ void start_batch(int tile, int batch) const {
    const int first = tile % 2 * rows_of_warp + batch * batch_rows;
    const SharedAddress landing = landing_ + batch * batch_bytes;
    const auto address = reinterpret_cast<std::uint64_t>(address_);
#pragma unroll
    for (int r = 0; r < batch_rows; ++r) {
      const auto* source = reinterpret_cast<const std::uint8_t*>(shuffle(address, first + r));
      copy_16_bytes(landing + r * landing_pitch + lane_ * 16, source + lane_ * 16, started_.valid >> (first + r) & 1);
    }
    // What is left of the four rows.
    constexpr int rest = row_bytes / 16 - warp_lanes;
    const int r = lane_ / rest % batch_rows, chunk = warp_lanes + lane_ % rest;
    const auto* source = reinterpret_cast<const std::uint8_t*>(shuffle(address, first + r));
    if (lane_ < rest * batch_rows) {
      copy_16_bytes(landing + r * landing_pitch + chunk * 16, source + chunk * 16, started_.valid >> (first + r) & 1);
    }
  }
  __device__ static void end_of_batch() { commit_copies(); }
  /// Waits for the oldest of the batches under way.
  __device__ static void wait_for_batch() {
    wait_for_copies<batches_of_tile - 1>();
    sync_warp();
  }

  /// Decodes the warp's rows of a tile; as soon as a batch has left its landing place, that of the next tile follows.
  template <Fp8Encoding encoding>
  __device__ void decode_tile(int tile, int stage) {
    const SharedAddress target = shared_address(shared_.tiles[stage]) + warp_ * (rows_of_warp * 128);
    const bool more = tile + 1 < tiles_;
#pragma unroll 1
    for (int batch = 0; batch < batches_of_tile; ++batch) {
      wait_for_batch();
      const SharedAddress landing = landing_ + batch * batch_bytes;
      const SharedAddress scales = scales_ + (tile % 4 * rows_of_warp + batch * batch_rows) * 8 + lane_ / 4;
      decode_rows<encoding>(landing, scales, target, batch * batch_rows);
      // The bf16 channels: 8 lanes a row.
      const Words<4> channels =
          load_shared<Words<4>>(landing + lane_ / 8 * landing_pitch + v4_row.nope_width + lane_ % 8 * 16);
      store_shared(
          target + (width / block_columns - 1) * block_bytes + swizzled(batch * batch_rows + lane_ / 8, lane_ % 8),
          channels);
      sync_warp();  // the landing place has been read
      if (more) {
        if (batch == 0 && tile % 2 == 1) {
          resolve((tile + 1) / 2);
          fetch();
        }
        start_batch(tile + 1, batch);
      }
      end_of_batch();
    }
  }

  /// A lane turns 16 codes of a row into two chunks. Of two neighbouring rows, lanes 4 to 7 of every eight take the
  /// second one first: so eight lanes at a time reach all banks.
  template <Fp8Encoding encoding>
  __device__ void decode_rows(SharedAddress landing, SharedAddress scales, SharedAddress target, int row) const {
    using Decoder = Fp8Decoder<encoding>;
    const int late = lane_ / 4 % 2, other = late ? -1 : 1;
    const SharedAddress from = landing + late * landing_pitch + lane_ * 16;
    Words<4> codes[batch_rows];
    std::uint8_t scale[batch_rows];
    bool plain = true;
#pragma unroll
    for (int i = 0; i < batch_rows; ++i) {
      const int r = i % 2 == 0 ? i : i - 1 + other;
      codes[i] = load_shared<Words<4>>(from + r * landing_pitch);
      scale[i] = load_shared<std::uint8_t>(scales + (late + r) * 8);
    }
#pragma unroll
    for (int i = 0; i < batch_rows; ++i) plain = Decoder::are_plain(codes[i].w, scale[i]) && plain;
    if (lane_ >= code_chunks) return;
    const SharedAddress block = target + lane_ / 4 * block_bytes;
    if (plain) {
      const SharedAddress first = block + swizzled(late, 2 * (lane_ % 4));
#pragma unroll
      for (int i = 0; i < batch_rows; ++i) {
        std::uint32_t out[4][2];
#pragma unroll
        for (int j = 0; j < 4; ++j) Decoder::decode_plain(codes[i].w[j], Decoder::factor(scale[i]), out[j]);
        const int even = row + i / 2 * 2;  // the swizzle of an even row leaves the lowest bit alone
        const SharedAddress place = (first + even * 128) ^ static_cast<std::uint32_t>((even & 7) << 4);
        store_chunks(i % 2 == 0 ? place : (place ^ 16u) + other * 128, out);
      }
      return;
    }
#pragma unroll 1
    for (int r = 0; r < batch_rows; ++r) {  // from the landing place again: registers are for the usual case
      const auto words = load_shared<Words<4>>(landing + r * landing_pitch + lane_ * 16);
      const auto byte = load_shared<std::uint8_t>(scales + r * 8);
      std::uint32_t out[4][2];
#pragma unroll
      for (int j = 0; j < 4; ++j) Decoder::decode_careful(words.w[j], byte, out[j]);
      store_chunks(block + swizzled(row + r, 2 * (lane_ % 4)), out);
    }
  }
  __device__ static void store_chunks(SharedAddress place, const std::uint32_t (&out)[4][2]) {
    store_shared(place, Words<4>{{out[0][0], out[0][1], out[1][0], out[1][1]}});
    store_shared(place ^ 16u, Words<4>{{out[2][0], out[2][1], out[3][0], out[3][1]}});
  }

  /// Of a pair of tiles, a bit a row.
  struct Pair {
    std::uint32_t valid = 0, fnuz = 0;
  };

  const AttentionProblem& problem_;
  SharedMemory& shared_;
  const int tiles_, warp_, lane_;
  SharedAddress landing_, scales_;  // of this warp
  int segment_ = 0, left_ = 0;      // of the list: what was not fetched
  RawEntry pending_;
  int pending_segment_ = 0;
  bool pending_inside_ = false;
  const std::uint8_t* address_ = nullptr;  // of this lane's row
  Pair started_, decoding_;
};

}  // namespace raggedmla::gpu::sm90::fp8_heads
