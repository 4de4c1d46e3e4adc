// The two output warpgroups of the fp8 kernel: O += P V, each 256 channels of all 64 heads in its registers; the store.
#pragma once

#include "attention/output.cuh"
#include "attention/sm90/fp8_heads_shared.cuh"
#include "gpu/mma/sm90.cuh"
#include "gpu/shared_memory.cuh"

namespace raggedmla::gpu::sm90::fp8_heads {

class OutputGroup {
 public:
  /// `half` 0 or 1: which 256 channels.
  __device__ OutputGroup(const AttentionProblem& problem, SharedMemory& shared, const Place& place, int tiles, int half)
      : problem_(problem),
        shared_(shared),
        place_(place),
        tiles_(tiles),
        half_(half),
        warp_(warp_index() % 4),
        lane_(lane_index()) {}

  __device__ void run(const Partials& partials) {
#pragma unroll
    for (int j = 0; j < count; ++j) o_[j] = 0;
    RingPosition<stages> at;
    for (int tile = 0; tile < tiles_; ++tile, at.advance()) {
      random_delay(4);
      shared_.tile_full[at.index].wait(at.parity);
      shared_.scores_full[at_.index].wait(at_.parity);
      const Exchange& exchange = shared_.exchange[at_.index];
      if (exchange.rescale[warp_] != 0) scale_rows(exchange);
      multiply(at.index);
      arrive_as_warp(shared_.tile_empty[at.index]);
      arrive_as_warp(shared_.scores_empty[at_.index]);
      at_.advance();
    }
    shared_.scores_full[at_.index].wait(at_.parity);
    scale_rows(shared_.exchange[at_.index]);
    if (place_.splits > 1) {
      store_part(partials);
    } else {
      store_whole();
    }
  }

 private:
  static constexpr int channels = width / 2, count = channels / 2;

  __device__ int head(int i) const { return 16 * warp_ + lane_ / 4 + 8 * i; }

  __device__ void multiply(int stage) {
    const std::uint64_t p = descriptor::k_major(shared_address(shared_.probabilities[at_.index]));
    const std::uint64_t v =
        descriptor::transposed(shared_address(shared_.tiles[stage]) + half_ * (tile_bytes / 2), block_bytes);
    keep_in_registers(o_);
    products_begin();
#pragma unroll
    for (int k = 0; k < tile_rows / 16; ++k) {
      const std::uint64_t a = descriptor::advance(p, k * k_step_bytes);
      const std::uint64_t b = descriptor::advance(v, k * transposed_k_step_bytes);
      product_transposed<0>(o_, a, b, true);
      product_transposed<count / 2>(o_, a, descriptor::advance(b, 2 * block_bytes), true);
    }
    products_commit();
    products_wait();
    keep_in_registers(o_);
  }

  __device__ void scale_rows(const Exchange& exchange) {
    const float factor[2] = {exchange.row_factor[head(0)], exchange.row_factor[head(1)]};
#pragma unroll
    for (int j = 0; j < count; ++j) o_[j] *= factor[j / 2 % 2];
  }

  /// Through the tiles and q, which no product reads any more: stores from registers would touch eight rows at a time.
  __device__ void store_part(const Partials& partials) const {
    synchronize(output_threads_barrier, 2 * group_threads);
    const SharedAddress passing = shared_address(shared_.tiles) + (half_ * 4 + warp_) * 16 * passing_pitch;
    static_assert(8 * 16 * passing_pitch <= stages * tile_bytes + sizeof(SharedMemory::q));
#pragma unroll
    for (int i = 0; i < 2; ++i) pass_rows(i, passing + i * 8 * passing_pitch);
    fence_async_proxy();
    sync_warp();
    const std::int64_t h = place_.first_head + 16 * warp_ + lane_;
    if (lane_ < 16 && h < problem_.heads) {
      const float* out =
          partials.out + ((place_.t * problem_.heads + h) * place_.splits + place_.split) * width + half_ * channels;
      store_bytes(out, passing + lane_ * passing_pitch, channels * 4);
    }
    wait_for_bulk_stores();
  }

  /// Through the stages, which no product reads any more, so that threads store neighbouring channels. A warp stores
  /// the rows that it holds, 8 heads at a time.
  __device__ void store_whole() {
    synchronize(output_threads_barrier, 2 * group_threads);
    const InverseRope rope(problem_.cos_sin, problem_.cos_sin_stride, problem_.cos_sin_rows, problem_.positions,
                           place_.t);
    const SharedAddress passing = shared_address(shared_.tiles) + (half_ * 4 + warp_) * 8 * passing_pitch;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sync_warp();
      pass_rows(i, passing);
      sync_warp();
#pragma unroll 1
      for (int r = 0; r < 8; ++r) {
        const std::int64_t h = place_.first_head + 16 * warp_ + 8 * i + r;
        if (h >= problem_.heads) break;
        const std::int64_t row = place_.t * problem_.out_stride_token + h * problem_.out_stride_head;
#pragma unroll
        for (int k = 0; k < channels / 4 / warp_lanes; ++k) {
          const int channel = (k * warp_lanes + lane_) * 4;
          store_channels(problem_.out, problem_.out_is_f32, row, half_ * channels + channel,
                         load_shared<FourChannels>(passing + r * passing_pitch + channel * 4), rope);
        }
      }
    }
  }

  /// The warp's heads 8i to 8i + 7 to shared memory, a row of 256 channels each.
  __device__ void pass_rows(int i, SharedAddress passing) const {
    const SharedAddress place = passing + lane_ / 4 * passing_pitch + lane_ % 4 * 8;
#pragma unroll
    for (int g = 0; g < channels / 8; ++g) {
      store_shared(place + g * 32,
                   ChannelPair{{i == 0 ? o_[4 * g] : o_[4 * g + 2], i == 0 ? o_[4 * g + 1] : o_[4 * g + 3]}});
    }
  }
  static constexpr int passing_pitch = channels * 4 + 32;  // 4 rows times 4 lanes of 8 bytes reach all banks

  struct alignas(8) ChannelPair {
    float v[2];
  };
  static constexpr int output_threads_barrier = 2;

  const AttentionProblem& problem_;
  SharedMemory& shared_;
  const Place place_;
  const int tiles_, half_, warp_, lane_;
  RingPosition<exchanges> at_;  // in the exchange
  float o_[count];              // o_[4 g + 2 i + e]: channel 8 g + 2 (lane % 4) + e of head(i)
};

}  // namespace raggedmla::gpu::sm90::fp8_heads
