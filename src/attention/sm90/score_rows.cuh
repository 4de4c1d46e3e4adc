// The score warpgroup: S = q K^T, the running maximum and sum, and P = exp2(S) as bf16 for the output warpgroups.
//
// Most of q stays in its registers (A operands), so that a tile costs shared memory little more than one pass over its
// rows. Its softmax of a tile runs while the output warpgroups have the matrix units; everything here is written for
// few registers and many independent instructions, since one warp per scheduler does it.
#pragma once

#include "attention/output.cuh"
#include "attention/sm90/shared_tile.cuh"
#include "gpu/mma/sm90.cuh"

namespace raggedmla::gpu::sm90 {

class ScoreGroup {
 public:
  __device__ ScoreGroup(const QueryTileCall& call, SharedMemory& shared)
      : call_(call), shared_(shared), thread_(static_cast<int>(threadIdx.x) % group_threads) {
    row_queries_ = shared.query_of_row[row(0)] % max_queries | shared.query_of_row[row(1)] % max_queries << 16;
  }

  __device__ void run() {
    int item = -1;
    for (RingPosition<stages> at;; at.advance()) {
      random_delay(2);
      shared_.tile_full[at.index].wait(at.parity);
      const StageInfo info = shared_.info[at.index];
      if (info.kind == TileKind::rows) {
        score_tile(at.index, info.rows);
        continue;
      }
      take_turn();
      if (item >= 0) finish_item(item);
      if (info.kind == TileKind::end) return;
      item = item < 0 ? items_begin(call_) : next_item(item);
      begin_item(at.index, item);
    }
  }

 private:
  static constexpr float infinity = __builtin_huge_valf();
  /// The reference maximum follows the true one only when it lags by more than this (base 2): weights stay below 2^8,
  /// and the output is hardly ever rescaled.
  static constexpr float lag = 8.0f;
  static constexpr int score_count = tile_rows / 2;
  /// Scores of a tile: s[4 g + 2 i + e] is column 8 g + 2 (lane % 4) + e of row(i).
  using Scores = float[score_count];

  __device__ int warp() const { return thread_ / warp_lanes; }
  __device__ int lane() const { return thread_ % warp_lanes; }
  /// This thread's two rows of 64 in products.
  __device__ int row(int i) const { return 16 * warp() + lane() / 4 + 8 * i; }

  // ---- items -------------------------------------------------------------------------------------------------------

  /// Takes q from a stage: the last column blocks to their own place in shared memory, the others to registers.
  __device__ void begin_item(int stage, int item) {
    constexpr int copies = q_shared_blocks * block_bytes / 16 / group_threads;
    const auto* from = reinterpret_cast<const uint4*>(shared_.tiles[stage] + q_register_blocks * block_bytes);
    auto* to = reinterpret_cast<uint4*>(shared_.q);
    uint4 copied[copies];
#pragma unroll
    for (int i = 0; i < copies; ++i) copied[i] = from[thread_ + i * group_threads];
    synchronize(score_barrier, group_threads);  // no product reads the shared part any more
#pragma unroll
    for (int i = 0; i < copies; ++i) to[thread_ + i * group_threads] = copied[i];
    fence_async_proxy();

    const std::uint32_t fragments = shared_address(shared_.tiles[stage]);
    const int fragment_row = 16 * warp() + lane() % 16;
#pragma unroll
    for (int k = 0; k < 4 * q_register_blocks; ++k) {
      load_fragments(q_[k], fragments + (k / 4) * block_bytes + swizzled(fragment_row, 2 * (k % 4) + lane() / 16));
    }
    synchronize(score_barrier, group_threads);
    release(stage);
    queries_ = queries_of(call_, item);
    for (int i = 0; i < 2; ++i) {
      maximum_[i] = true_maximum_[i] = -infinity;
      sum_[i] = 0;
    }
  }

  /// Writes lse and maximum, and hands the output warpgroups what they divide by. Of the four lanes that share a pair
  /// of rows, lane 0 does the first row and lane 1 the second.
  __device__ void finish_item(int item) {
    const AttentionProblem& problem = call_.problem;
    const float sums[2] = {warp_sum(sum_[0], 4), warp_sum(sum_[1], 4)};
    const int i = lane() % 4;
    const float maxima[2] = {quad_maximum(true_maximum_[0]), quad_maximum(true_maximum_[1])};
    const float sum = i == 0 ? sums[0] : sums[1];
    const float maximum = i == 0 ? maximum_[0] : maximum_[1], largest = i == 0 ? maxima[0] : maxima[1];
    const HeadEnd end(maximum, sum);
    Exchange& exchange = begin_exchange();
    if (i < 2) exchange.row_factor[row(i)] = end.factor(shared_.sink[row(i)]);
    end_exchange();

    const int r = row(i % 2), query = shared_.query_of_row[r];
    if (i >= 2 || query >= queries_) return;
    const std::int64_t t = std::int64_t{item} * call_.queries_per_item + query;
    store_statistics(problem, t, r - query * static_cast<int>(problem.heads), end.lse(), end.max_logit(largest));
  }

  // ---- tiles -------------------------------------------------------------------------------------------------------

  __device__ void score_tile(int stage, int rows) {
    Scores s;
    Masks masks;
    multiply(stage, rows, s, masks);
    take_turn();
    const Selections& selections = shared_.selections[stage];
    const bool repeats = *reinterpret_cast<const std::uint32_t*>(selections.repeats) != 0;
    const std::uint64_t nonfinite = select(masks, s);
    Exchange& exchange = begin_exchange();
    weigh(s, exchange);
    if (repeats) count_repeats(selections, s);
    release(stage);
    store(s);
    if (lane() == 0) exchange.nonfinite_rows[warp()] = nonfinite;
    end_exchange();
    add_up(s);
  }

  /// What a thread looks at of a tile's selections: those of its two rows and of one query, so that the warp sees all.
  struct Masks {
    uint2 of_row[2], some;
    __device__ void load(const Selections& selections, std::uint32_t row_queries) {
      const auto* masks = reinterpret_cast<const uint2*>(selections.queries);
      some = masks[lane_index() % max_queries];
      of_row[0] = masks[row_queries & 0xFFFFu];
      of_row[1] = masks[row_queries >> 16];
    }
  };

  /// s = q K^T of the tile. Its masks are loaded meanwhile.
  __device__ void multiply(int stage, int rows, Scores& s, Masks& masks) {
    const std::uint64_t tile = descriptor::k_major(shared_address(shared_.tiles[stage]));
    fence_async_proxy();  // gathered rows came by cp.async
    if (rows > narrow_rows) {
      multiply(tile, s);
      masks.load(shared_.selections[stage], row_queries_);
      products_wait();
      keep_in_registers(s);
    } else {
      float narrow[narrow_rows / 2];
      multiply(tile, narrow);
      masks.load(shared_.selections[stage], row_queries_);
      products_wait();
      keep_in_registers(narrow);
#pragma unroll
      for (int j = 0; j < score_count; ++j) s[j] = j < narrow_rows / 2 ? narrow[j < narrow_rows / 2 ? j : 0] : 0.0f;
    }
  }

  template <int count>
  __device__ void multiply(std::uint64_t tile, float (&s)[count]) {
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
  }

  /// Scores of rows that a query does not select become -inf. Returns the cache rows, if some query skips rows, whose
  /// scores are all infinite or NaN: since key and value are the same row, a row with a NaN or an Inf shows so, and a
  /// query with one does not.
  __device__ std::uint64_t select(const Masks& masks, Scores& s) const {
    const bool all_rows = (masks.some.x & masks.some.y) == 0xFFFFFFFFu;
    if (__all_sync(all_lanes, all_rows || lane() % max_queries >= queries_)) return 0;

    float watch[4] = {0, 0, 0, 0};  // stay 0 unless a score is infinite or NaN
#pragma unroll
    for (int j = 0; j < score_count; ++j) watch[j % 4] = fmaf(s[j], 0.0f, watch[j % 4]);
    const bool suspect = any_lane((watch[0] + watch[1]) + (watch[2] + watch[3]) != 0);
    const std::uint64_t nonfinite = suspect ? nonfinite_columns(s) : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint2 mask = masks.of_row[i];
      const std::uint32_t mine[2] = {mask.x >> (2 * (lane() % 4)), mask.y >> (2 * (lane() % 4))};
#pragma unroll
      for (int g = 0; g < tile_rows / 8; ++g) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if ((mine[g / 4] >> (8 * (g % 4) + e) & 1) == 0) s[4 * g + 2 * i + e] = -infinity;
        }
      }
    }
    return nonfinite;
  }

  /// Columns that are not finite in any of the warp's rows.
  __device__ std::uint64_t nonfinite_columns(const Scores& s) const {
    std::uint32_t finite[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < score_count; ++j) {
      const int column = 8 * (j / 4) + j % 2;
      if (fabsf(s[j]) < infinity) finite[column / 32] |= 1u << (column % 32 + 2 * (lane() % 4));
    }
    return ~(static_cast<std::uint64_t>(__reduce_or_sync(all_lanes, finite[1])) << 32 |
             __reduce_or_sync(all_lanes, finite[0]));
  }

  /// Scores become weights; the output so far may have to be rescaled.
  __device__ void weigh(Scores& s, Exchange& exchange) {
    const float scale = call_.problem.scale * log2_e;
    float largest[2];
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
    bool rises = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      largest[i] *= scale;
      true_maximum_[i] = fmaxf(true_maximum_[i], largest[i]);  // of this lane's columns
      rises |= largest[i] > maximum_[i] + lag;
    }
    const bool rescale = any_lane(rises) && raise_maxima(largest, exchange);
    if (lane() == 0) exchange.rescale[warp()] = rescale ? 1 : 0;
    const float minus_m[2] = {maximum_[0] == -infinity ? 0.0f : -maximum_[0],
                              maximum_[1] == -infinity ? 0.0f : -maximum_[1]};
    // Not fused: the maximum is made of rounded products, too, and in huge logits the rounding is huge.
#pragma unroll
    for (int j = 0; j < score_count; ++j) s[j] = exp2_fast(__fadd_rn(__fmul_rn(s[j], scale), minus_m[j / 2 % 2]));
  }

  /// Raises what lags too far behind. Returns whether the output so far must be rescaled, by factors in the exchange.
  __device__ bool raise_maxima(float (&largest)[2], Exchange& exchange) {
    float factor[2] = {1, 1};
    bool rescale = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      largest[i] = quad_maximum(largest[i]);
      if (!(largest[i] > maximum_[i] + lag)) continue;
      if (maximum_[i] != -infinity) {
        factor[i] = exp2_fast(maximum_[i] - largest[i]);
        rescale = true;
      }
      maximum_[i] = largest[i];
    }
    if (!any_lane(rescale)) return false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum_[i] *= factor[i];
      if (lane() % 4 == 0) exchange.row_factor[row(i)] = factor[i];
    }
    return true;
  }

  __device__ static float quad_maximum(float value) {
    value = fmaxf(value, shuffle_xor(value, 1));
    return fmaxf(value, shuffle_xor(value, 2));
  }

  /// A row that a query selects n times has n times the weight.
  __device__ void count_repeats(const Selections& selections, Scores& weights) const {
    const int shift[2] = {4 * (shared_.query_of_row[row(0)] % max_queries),
                          4 * (shared_.query_of_row[row(1)] % max_queries)};
#pragma unroll
    for (int j = 0; j < score_count; ++j) {
      const std::uint32_t counts = selections.counts[8 * (j / 4) + 2 * (lane() % 4) + j % 2];
      if (weights[j] != 0) weights[j] *= static_cast<float>(counts >> shift[j / 2 % 2] & 15);
    }
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
    const int fragment_row = 16 * warp() + lane() % 16;
    const std::uint32_t p = shared_address(shared_.probabilities[at_.index]) + fragment_row * 128;
#pragma unroll
    for (int g = 0; g < tile_rows / 8; g += 2) {
      const float* w = weights + 4 * g;
      store_fragments(p + (((g + lane() / 16) ^ (lane() & 7)) << 4), pack_bf16(w[0], w[1]), pack_bf16(w[2], w[3]),
                      pack_bf16(w[4], w[5]), pack_bf16(w[6], w[7]));
    }
  }

  // ---- signals -----------------------------------------------------------------------------------------------------

  __device__ Exchange& begin_exchange() {
    random_delay(3);
    shared_.scores_empty[at_.index].wait(at_.parity ^ 1);
    return shared_.exchange[at_.index];
  }
  __device__ void end_exchange() {
    fence_async_proxy();
    sync_warp();
    if (lane() == 0) shared_.scores_full[at_.index].arrive();
    at_.advance();
  }
  /// The output warpgroups may use the matrix units for the entry before this one.
  __device__ void take_turn() {
    sync_warp();
    if (lane() == 0) shared_.multiplied[turn_].arrive();
    turn_ = (turn_ + 1) % turns;
  }
  __device__ void release(int stage) {
    sync_warp();
    if (lane() == 0) shared_.tile_empty[stage].arrive();
  }

  const QueryTileCall& call_;
  SharedMemory& shared_;
  const int thread_;
  RingPosition<2> at_;  // in the exchange
  int turn_ = 0;
  int queries_ = 0;            // of the item
  std::uint32_t row_queries_;  // of this thread's two rows, 16 bits each

  std::uint32_t q_[4 * q_register_blocks][4];
  float maximum_[2], true_maximum_[2], sum_[2];  // base 2
};

}  // namespace raggedmla::gpu::sm90
