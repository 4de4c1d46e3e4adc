// The output warpgroup of the single query kernel: O += P V, 128 channels a warp, 16 heads in its registers; and the
// store.
#pragma once

#include "attention/sm90/output_rows.cuh"
#include "attention/sm90/single_query_shared.cuh"
#include "gpu/mma/sm80.cuh"
#include "gpu/mma/sm90.cuh"

namespace raggedmla::gpu::sm90::single_query {

class OutputGroup {
 public:
  __device__ OutputGroup(const Call& call, SharedMemory& shared)
      : call_(call), shared_(shared), warp_(warp_index() % group_warps), lane_(lane_index()) {
#pragma unroll
    for (int i = 0; i < steps; ++i) value_[i] = chunk_offset(lane_ % 16, channels / 8 * warp_ + 2 * i + lane_ / 16);
  }

  __device__ void run() {
    int t = -1;
    for (RingPosition<stages> at;; at.advance()) {
      random_delay(4);
      shared_.tile_full(at.index).wait(at.parity);
      const TileKind kind = load_shared<StageInfo>(shared_.info(at.index)).kind;
      if (kind == TileKind::rows) {
        accumulate(at);
        continue;
      }
      arrive_as_warp(shared_.tile_empty(at.index));
      if (t >= 0) finish(t);
      if (kind == TileKind::end) return;
      t = t < 0 ? first_query() : next_query(t);
#pragma unroll
      for (int n = 0; n < groups; ++n) o_[n] = {};
    }
  }

 private:
  static constexpr int channels = width / group_warps, groups = channels / 8;
  static constexpr int steps = channels / 16;  // matrix loads that cover the channels of 16 rows
  static constexpr int ahead = 4;              // matrix loads under way before their products

  /// Of the tile at `at`, and of the one after it if both were scored together.
  __device__ void accumulate(RingPosition<stages>& at) {
    shared_.scores_full(at_.index).wait(at_.parity);
    const ExchangeInfo info = load_shared<ExchangeInfo>(shared_.exchange_info(at_.index));
    if (info.rescale != 0) scale_rows();
    const SharedAddress p = shared_.weights(at_.index) + lane_ % 16 * weight_pitch + lane_ / 16 * 16;
    add_values(at.index, p);
    if (info.tiles > 1) {
      at.advance();
      shared_.tile_full(at.index).wait(at.parity);
      add_values(at.index, p + tile_rows * 2);
    }
    end_exchange();
  }

  __device__ void add_values(int stage, SharedAddress p) {
    const SharedAddress tile = shared_.tile(stage);
    mma::sm80::A a[tile_rows / 16];
#pragma unroll
    for (int k = 0; k < tile_rows / 16; ++k) load_fragments(a[k].r, p + k * 32);
    constexpr int loads = tile_rows / 16 * steps;
    std::uint32_t b[ahead + 1][4];
    const auto load = [&](int i) {
      load_transposed_fragments(b[i % (ahead + 1)], tile + i / steps * 16 * row_pitch + value_[i % steps]);
    };
#pragma unroll
    for (int i = 0; i < ahead; ++i) load(i);
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      if (i + ahead < loads) load(i + ahead);
      const auto& now = b[i % (ahead + 1)];
      mma::sm80::multiply(o_[i % steps * 2], a[i / steps], {{now[0], now[1]}});
      mma::sm80::multiply(o_[i % steps * 2 + 1], a[i / steps], {{now[2], now[3]}});
    }
    arrive_as_warp(shared_.tile_empty(stage));
  }

  __device__ void scale_rows() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float factor = load_shared<float>(shared_.factor(at_.index, lane_ / 4 + 8 * i));
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        o_[n].v[2 * i] *= factor;
        o_[n].v[2 * i + 1] *= factor;
      }
    }
  }

  __device__ void finish(int t) {
    shared_.scores_full(at_.index).wait(at_.parity);
    scale_rows();
    end_exchange();
    store_head<0>(t);
    store_head<1>(t);
  }

  template <int i>
  __device__ void store_head(int t) {
    const AttentionProblem& problem = call_.problem;
    const int h = lane_ / 4 + 8 * i;
    const bool valid = h < problem.heads;
    const auto value = [&](int g, int e) -> float& { return o_[g].v[2 * i + e]; };
    if (valid && warp_ == group_warps - 1 && problem.cos_sin != nullptr) rotate_back<groups - 8>(problem, t, value);
    const std::int64_t offset = t * problem.out_stride_token + h * problem.out_stride_head + warp_ * channels;
    if (problem.out_is_f32) {
      store_row<groups>(static_cast<float*>(problem.out) + offset, valid, call_.wide_stores, value);
    } else {
      store_row<groups>(static_cast<std::uint16_t*>(problem.out) + offset, valid, call_.wide_stores, value);
    }
  }

  __device__ void end_exchange() {
    arrive_as_warp(shared_.scores_empty(at_.index));
    at_.advance();
  }

  const Call& call_;
  const SharedMap shared_;
  const int warp_, lane_;
  RingPosition<2> at_;          // in the exchange
  SharedAddress value_[steps];  // where this lane's chunks stand in the first 16 rows of a tile
  mma::sm80::C o_[groups];
};

}  // namespace raggedmla::gpu::sm90::single_query
