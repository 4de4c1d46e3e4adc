// The score warpgroup of the fp8 kernel: S = q K^T for 64 heads, the running maximum and sum, and P = 2^(S - m) as
// bf16.
#pragma once

#include "attention/output.cuh"
#include "attention/sm90/fp8_heads_shared.cuh"
#include "gpu/async_copy.cuh"
#include "gpu/mma/sm90.cuh"
#include "gpu/shared_memory.cuh"

namespace raggedmla::gpu::sm90::fp8_heads {

class ScoreGroup {
 public:
  __device__ ScoreGroup(const AttentionProblem& problem, SharedMemory& shared, const Place& place, int tiles)
      : problem_(problem),
        shared_(shared),
        place_(place),
        tiles_(tiles),
        warp_(warp_index() % 4),
        lane_(lane_index()) {}

  __device__ void run(const Partials& partials) {
    take_queries();
    RingPosition<stages> at;
    for (int tile = 0; tile < tiles_; ++tile, at.advance()) {
      random_delay(2);
      shared_.tile_full[at.index].wait(at.parity);
      score_tile(at.index);
    }
    finish(partials);
  }

 private:
  static constexpr float infinity = __builtin_huge_valf();
  /// A rise of the maximum (base 2) that weights absorb without rescaling.
  static constexpr float lag = 8.0f;
  static constexpr int score_count = tile_rows / 2;
  static constexpr int barrier = 1;  // 0 is __syncthreads
  /// Scores of a tile: s[4 g + 2 i + e] is column 8 g + 2 (lane % 4) + e of head(i).
  using Scores = float[score_count];

  __device__ int head(int i) const { return 16 * warp_ + lane_ / 4 + 8 * i; }

  /// The last column blocks to their own place, the first ones through the last stage to registers.
  __device__ void take_queries() {
    constexpr int chunks = width / 8, heads_at_once = group_threads / chunks;
    const int thread = static_cast<int>(threadIdx.x) % group_threads, chunk = thread % chunks, block = chunk / 8;
    const SharedAddress passing = shared_address(shared_.tiles[stages - 1]);
    const SharedAddress target = block < q_register_blocks
                                     ? passing + block * block_bytes
                                     : shared_address(shared_.q) + (block - q_register_blocks) * block_bytes;
    const std::uint16_t* source =
        problem_.q + place_.t * problem_.q_stride_token + place_.first_head * problem_.q_stride_head + chunk * 8;
    const std::int64_t real_heads = problem_.heads - place_.first_head;
#pragma unroll 8
    for (int h = thread / chunks; h < heads; h += heads_at_once) {
      const bool real = h < real_heads;
      copy_16_bytes(target + swizzled(h, chunk % 8), real ? source + h * problem_.q_stride_head : source, real);
    }
    wait_for_all_copies();
    fence_async_proxy();
    synchronize(barrier, group_threads);
#pragma unroll
    for (int k = 0; k < 4 * q_register_blocks; ++k) {
      load_fragments(q_[k],
                     passing + (k / 4) * block_bytes + swizzled(16 * warp_ + lane_ % 16, 2 * (k % 4) + lane_ / 16));
    }
    arrive_as_warp(shared_.q_taken);
  }

  __device__ void score_tile(int stage) {
    std::uint32_t valid[2];  // of the tile's rows, a bit each
    const auto* masks = reinterpret_cast<const std::uint32_t*>(shared_.valid[stage]);
    valid[0] = masks[0];
    valid[1] = masks[1];
    Scores s;
    multiply(stage, s);
    arrive_as_warp(shared_.tile_empty[stage]);
    if ((valid[0] & valid[1]) != 0xFFFFFFFFu) mask(valid, s);
    random_delay(3);
    shared_.scores_empty[at_.index].wait(at_.parity ^ 1);
    weigh(s);
    store(s);
    fence_async_proxy();
    arrive_as_warp(shared_.scores_full[at_.index]);
    at_.advance();
    add_up(s);
  }

  __device__ void multiply(int stage, Scores& s) {
    const std::uint64_t tile = descriptor::k_major(shared_address(shared_.tiles[stage]));
    const std::uint64_t q = descriptor::k_major(shared_address(shared_.q));
    keep_in_registers(s);
    products_begin();
#pragma unroll
    for (int k = 0; k < width / 16; ++k) {
      const std::uint64_t b = descriptor::advance(tile, (k / 4) * block_bytes + (k % 4) * k_step_bytes);
      constexpr int in_registers = 4 * q_register_blocks;
      if (k < in_registers) {
        product(s, q_[k < in_registers ? k : 0], b, k > 0);
      } else {
        const int rest = k - in_registers;
        product(s, descriptor::advance(q, (rest / 4) * block_bytes + (rest % 4) * k_step_bytes), b, true);
      }
    }
    products_commit();
    products_wait();
    keep_in_registers(s);
  }

  /// Scores of absent rows become -inf.
  __device__ void mask(const std::uint32_t (&valid)[2], Scores& s) const {
    const std::uint32_t mine[2] = {valid[0] >> (2 * (lane_ % 4)), valid[1] >> (2 * (lane_ % 4))};
#pragma unroll
    for (int j = 0; j < score_count; ++j) {
      const int row = 8 * (j / 4) + j % 2;
      if ((mine[row / 32] >> row % 32 & 1) == 0) s[j] = -infinity;
    }
  }

  /// Scores become weights; the output so far may have to be rescaled.
  __device__ void weigh(Scores& s) {
    const float scale = problem_.scale * log2_e;
    float largest[2], factor[2] = {1, 1};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float part[4];
#pragma unroll
      for (int g = 0; g < tile_rows / 8; ++g) {
        const float pair = fmaxf(s[4 * g + 2 * i], s[4 * g + 2 * i + 1]);
        part[g % 4] = g < 4 ? pair : fmaxf(part[g % 4], pair);
      }
      largest[i] = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
    }
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) largest[i] = fmaxf(largest[i], shuffle_xor(largest[i], step));
    }
    bool rescale = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      largest[i] *= scale;
      true_maximum_[i] = fmaxf(true_maximum_[i], largest[i]);
      if (largest[i] > maximum_[i] + lag) {
        if (maximum_[i] != -infinity) {
          factor[i] = exp2_fast(maximum_[i] - largest[i]);
          rescale = true;
        }
        maximum_[i] = largest[i];
      }
    }
    rescale = any_lane(rescale);
    Exchange& exchange = shared_.exchange[at_.index];
    if (rescale) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        sum_[i] *= factor[i];
        if (lane_ % 4 == 0) exchange.row_factor[head(i)] = factor[i];
      }
    }
    if (lane_ == 0) exchange.rescale[warp_] = rescale ? 1 : 0;
    const float minus_m[2] = {maximum_[0] == -infinity ? 0.0f : -maximum_[0],
                              maximum_[1] == -infinity ? 0.0f : -maximum_[1]};
    // Not fused: the maximum is made of rounded products, too, which shows in huge logits.
#pragma unroll
    for (int j = 0; j < score_count; ++j) s[j] = exp2_fast(__fadd_rn(__fmul_rn(s[j], scale), minus_m[j / 2 % 2]));
  }

  __device__ void add_up(const Scores& weights) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float part[2] = {0, 0};
#pragma unroll
      for (int g = 0; g < tile_rows / 8; ++g) {
        part[0] += weights[4 * g + 2 * i];
        part[1] += weights[4 * g + 2 * i + 1];
      }
      sum_[i] += part[0] + part[1];
    }
  }

  /// Weights to the exchange, as the K-major operand of the second product.
  __device__ void store(const Scores& weights) const {
    const SharedAddress p = shared_address(shared_.probabilities[at_.index]) + (16 * warp_ + lane_ % 16) * 128;
#pragma unroll
    for (int g = 0; g < tile_rows / 8; g += 2) {
      const float* w = weights + 4 * g;
      store_fragments(p + (((g + lane_ / 16) ^ (lane_ & 7)) << 4), pack_bf16(w[0], w[1]), pack_bf16(w[2], w[3]),
                      pack_bf16(w[4], w[5]), pack_bf16(w[6], w[7]));
    }
  }

  /// Writes lse and maximum, and hands the output warpgroups what they multiply with. Of the four lanes that share a
  /// pair of heads, lane 0 does the first one and lane 1 the second.
  __device__ void finish(const Partials& partials) {
    const float sums[2] = {warp_sum(sum_[0], 4), warp_sum(sum_[1], 4)};
    const int i = lane_ % 4;
    const float sum = i == 0 ? sums[0] : sums[1];
    const float maximum = i == 0 ? maximum_[0] : maximum_[1], largest = i == 0 ? true_maximum_[0] : true_maximum_[1];
    const std::int64_t h = place_.first_head + head(i % 2);
    const bool writes = i < 2 && h < problem_.heads, whole = place_.splits == 1;
    const HeadEnd end(maximum, sum);
    shared_.scores_empty[at_.index].wait(at_.parity ^ 1);
    if (i < 2) {
      shared_.exchange[at_.index].row_factor[head(i)] = end.factor(writes && whole ? sink_of(problem_, h) : -infinity);
    }
    arrive_as_warp(shared_.scores_full[at_.index]);

    if (!writes) return;
    if (whole) {
      store_statistics(problem_, place_.t, h, end.lse(), end.max_logit(largest));
    } else {
      const std::int64_t part = (place_.t * problem_.heads + h) * place_.splits + place_.split;
      partials.lse[part] = end.lse();
      partials.max_logits[part] = end.max_logit(largest);
    }
  }

  const AttentionProblem& problem_;
  SharedMemory& shared_;
  const Place place_;
  const int tiles_, warp_, lane_;
  RingPosition<exchanges> at_;  // in the exchange

  std::uint32_t q_[4 * q_register_blocks][4];
  float maximum_[2] = {-infinity, -infinity}, true_maximum_[2] = {-infinity, -infinity}, sum_[2] = {0, 0};  // base 2
};

}  // namespace raggedmla::gpu::sm90::fp8_heads
