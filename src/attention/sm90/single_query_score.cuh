// The score warpgroup of the single query kernel: S = q K^T, running maximum and sum, and P = 2^(S - m) as bf16 for the
// output warpgroup. Of every tile, warp w computes the scores of rows 8w to 8w + 7 over all channels: q, 16 heads, is
// in its registers. Two tiles go together where there are two, since this warpgroup is what the others wait for.
//
// The reference m of a head is raised only when a score exceeds it by more than 8 in base 2; the vote on that is the
// one barrier.
#pragma once

#include "attention/output.cuh"
#include "attention/sm90/single_query_shared.cuh"
#include "gpu/fast_math.cuh"
#include "gpu/mma/sm80.cuh"
#include "gpu/mma/sm90.cuh"

namespace raggedmla::gpu::sm90::single_query {

class ScoreGroup {
 public:
  __device__ ScoreGroup(const Call& call, SharedMemory& shared)
      : problem_(call.problem), shared_(shared), warp_(warp_index() % group_warps), lane_(lane_index()) {
#pragma unroll
    for (int line = 0; line < lines; ++line) key_[line] = chunk_offset(rows * warp_ + lane_ % 8, 8 * line + lane_ / 8);
  }

  __device__ void run() {
    int t = -1;
    for (RingPosition<stages> at;; at.advance()) {
      random_delay(2);
      shared_.tile_full(at.index).wait(at.parity);
      const StageInfo info = load_shared<StageInfo>(shared_.info(at.index));
      if (info.kind == TileKind::rows) {
        const int stage = at.index;
        RingPosition<stages> next = at;
        next.advance();
        shared_.tile_full(next.index).wait(next.parity);
        const StageInfo following = load_shared<StageInfo>(shared_.info(next.index));
        if (following.kind == TileKind::rows) {
          score_tiles<2>({stage, next.index}, {info.valid, following.valid});
          at = next;
        } else {
          score_tiles<1>({stage}, {info.valid});
        }
        continue;
      }
      if (t >= 0) finish(t);
      if (info.kind == TileKind::end) return;
      t = t < 0 ? first_query() : next_query(t);
      begin(at.index);
    }
  }

 private:
  static constexpr float infinity = __builtin_huge_valf();
  /// A rise of the maximum (base 2) that weights absorb without rescaling.
  static constexpr float lag = 8.0f;
  static constexpr int rows = tile_rows / group_warps;
  static constexpr int lines = width * 2 / line_bytes;

  /// This lane's two heads.
  __device__ int head(int i) const { return lane_ / 4 + 8 * i; }

  __device__ void begin(int stage) {
    const SharedAddress q = shared_.tile(stage);
#pragma unroll
    for (int k = 0; k < width / 16; ++k) load_fragments(q_[k].r, q + chunk_offset(lane_ % 16, 2 * k + lane_ / 16));
    arrive_as_warp(shared_.tile_empty(stage));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      reference_[i] = -infinity;
      sum_[i] = 0;
      if (problem_.max_logits != nullptr) store_shared(shared_.largest(warp_, lane_, i), -infinity);
    }
  }

  // ---- tiles -------------------------------------------------------------------------------------------------------

  /// Scores of a tile: s[2 i + e] is row 2 (lane % 4) + e of the warp's eight and head(i).
  template <int tiles>
  using Scores = float[tiles][4];

  /// Two tiles at once share the latency of the softmax and its barrier.
  template <int tiles>
  __device__ void score_tiles(const int (&stage)[tiles], const std::uint32_t (&valid)[tiles]) {
    Scores<tiles> s;
    multiply<tiles>(stage, s);
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      arrive_as_warp(shared_.tile_empty(stage[n]));
      scale_and_mask(valid[n], s[n]);
    }
    begin_exchange();
    weigh<tiles>(s);
    end_exchange();
  }

  template <int tiles>
  __device__ void multiply(const int (&stage)[tiles], Scores<tiles>& s) const {
    // A product waits for the one before it in its sum: four sums hide that.
    constexpr int chains = 4 / tiles, ahead = 1;
    mma::sm80::C sums[tiles][chains] = {};
    constexpr int loads = width / 32;
    std::uint32_t b[ahead + 1][tiles][4];  // of two products each: half a line
    const auto load = [&](int i) {
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        load_fragments(b[i % (ahead + 1)][n], shared_.tile(stage[n]) + (key_[i / 2] ^ (i % 2 * 64)));
      }
    };
#pragma unroll
    for (int i = 0; i < ahead; ++i) load(i);
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      if (i + ahead < loads) load(i + ahead);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < tiles; ++n) {
          const auto& now = b[i % (ahead + 1)][n];
          mma::sm80::multiply(sums[n][(2 * i + half) % chains], q_[2 * i + half], {{now[2 * half], now[2 * half + 1]}});
        }
      }
    }
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[n][e] = sums[n][0].v[e] + sums[n][1].v[e];
        if constexpr (chains == 4) s[n][e] += sums[n][2].v[e] + sums[n][3].v[e];
      }
    }
  }

  __device__ void scale_and_mask(std::uint32_t valid, float (&s)[4]) const {
    const float scale = problem_.scale * log2_e;
#pragma unroll
    for (int e = 0; e < 4; ++e) s[e] *= scale;
    if (valid != 0xFFFFFFFFu) {
      const std::uint32_t mine = valid >> (rows * warp_ + 2 * (lane_ % 4));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if ((mine >> e % 2 & 1) == 0) s[e] = -infinity;
      }
    }
    if (problem_.max_logits == nullptr) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const SharedAddress largest = shared_.largest(warp_, lane_, i);
      store_shared(largest, fmaxf(load_shared<float>(largest), fmaxf(s[2 * i], s[2 * i + 1])));
    }
  }

  /// Scores become weights in the exchange; where any of them is too large, after all references are raised.
  template <int tiles>
  __device__ void weigh(const Scores<tiles>& s) {
    float largest[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      largest[i] = fmaxf(s[0][2 * i], s[0][2 * i + 1]);
      if constexpr (tiles == 2) largest[i] = fmaxf(largest[i], fmaxf(s[1][2 * i], s[1][2 * i + 1]));
    }
    bool rises = largest[0] > reference_[0] + lag || largest[1] > reference_[1] + lag;
    Scores<tiles> p;
    store_weights<tiles>(s, p);
    rises = synchronize_or(score_barrier, group_threads, rises);
    if (rises) {
      raise_references(largest);
      store_weights<tiles>(s, p);
    }
    if (warp_ == 0 && lane_ == 0) store_shared(shared_.exchange_info(at_.index), ExchangeInfo{rises, tiles});
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) sum_[i] += p[n][2 * i] + p[n][2 * i + 1];
    }
  }

  template <int tiles>
  __device__ void store_weights(const Scores<tiles>& s, Scores<tiles>& p) const {
    const SharedAddress place =
        shared_.weights(at_.index) + head(0) * weight_pitch + (rows * warp_ + 2 * (lane_ % 4)) * 2;
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        // Before the first valid row the reference is -inf, and -inf - -inf is no number.
        p[n][e] = exp2_fast(s[n][e] - (reference_[e / 2] == -infinity ? 0.0f : reference_[e / 2]));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        store_shared(place + i * 8 * weight_pitch + n * tile_rows * 2, pack_bf16(p[n][2 * i], p[n][2 * i + 1]));
      }
    }
  }

  __device__ void raise_references(const float (&largest)[2]) {
    publish(&SharedMap::maximum, [&](int i) { return quad_maximum(largest[i]); });
    synchronize(score_barrier, group_threads);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float raised = fmaxf(reference_[i], gather_maximum(i));
      const float factor = reference_[i] == raised ? 1.0f : exp2_fast(reference_[i] - raised);
      reference_[i] = raised;
      sum_[i] *= factor;
      if (warp_ == 0 && lane_ % 4 == 0) store_shared(shared_.factor(at_.index, head(i)), factor);
    }
    synchronize(score_barrier, group_threads);  // the maxima are read
  }

  // ---- exchange within the warpgroup -------------------------------------------------------------------------------

  __device__ static float quad_maximum(float value) {
    value = fmaxf(value, shuffle_xor(value, 1));
    return fmaxf(value, shuffle_xor(value, 2));
  }
  /// What the four lanes of a head have in common, for the other warps.
  template <class Value>
  __device__ void publish(SharedAddress (SharedMap::*place)(int, int) const, Value&& value) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float mine = value(i);
      if (lane_ % 4 == 0) store_shared((shared_.*place)(warp_, head(i)), mine);
    }
  }
  __device__ float gather_maximum(int i) const {
    float largest = -infinity;
#pragma unroll
    for (int w = 0; w < group_warps; ++w) largest = fmaxf(largest, load_shared<float>(shared_.maximum(w, head(i))));
    return largest;
  }
  __device__ float gather_sum(int i) const {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < group_warps; ++w) sum += load_shared<float>(shared_.sum(w, head(i)));
    return sum;
  }

  // ---- the end of a query ------------------------------------------------------------------------------------------

  /// Writes lse and maximum, and hands the output warpgroup what it divides by. Warp i does head(i).
  __device__ void finish(int t) {
    publish(&SharedMap::sum, [&](int i) { return warp_sum(sum_[i], 4); });
    if (problem_.max_logits != nullptr) {
      publish(&SharedMap::maximum,
              [&](int i) { return quad_maximum(load_shared<float>(shared_.largest(warp_, lane_, i))); });
    }
    begin_exchange();
    synchronize(score_barrier, group_threads);
    if (warp_ == 0) finish_head<0>(t);
    if (warp_ == 1) finish_head<1>(t);
    end_exchange();
    synchronize(score_barrier, group_threads);  // sums and maxima are read
  }

  template <int i>
  __device__ void finish_head(int t) const {
    if (lane_ % 4 != 0) return;
    const HeadEnd end(reference_[i], gather_sum(i));
    const int h = head(i);
    const bool real = h < problem_.heads;
    store_shared(shared_.factor(at_.index, h), end.factor(real ? sink_of(problem_, h) : negative_infinity()));
    if (!real) return;
    const float largest = problem_.max_logits == nullptr ? 0.0f : gather_maximum(i);
    store_statistics(problem_, t, h, end.lse(), end.max_logit(largest));
  }

  // ---- signals -----------------------------------------------------------------------------------------------------

  __device__ void begin_exchange() const {
    random_delay(3);
    shared_.scores_empty(at_.index).wait(at_.parity ^ 1);
  }
  __device__ void end_exchange() {
    arrive_as_warp(shared_.scores_full(at_.index));
    at_.advance();
  }

  const AttentionProblem& problem_;
  const SharedMap shared_;
  const int warp_, lane_;
  RingPosition<2> at_;        // in the exchange
  SharedAddress key_[lines];  // where this lane's chunk in the first half of each line stands in a tile
  mma::sm80::A q_[width / 16];
  // Of this lane's heads: what scores are measured against (base 2), this lane's share of the sum of weights.
  float reference_[2], sum_[2];
};

}  // namespace raggedmla::gpu::sm90::single_query
