// The score warpgroup: S = q K^T, the running maximum and sum, and P = 2^(S - m) as bf16 for the output warpgroups.
//
// Most of q stays in its registers (A operands), so that a tile costs shared memory little more than one pass over its
// rows. Its softmax of a tile runs while the output warpgroups have the matrix units; everything here is written for
// few registers and many independent instructions, since one warp per scheduler does it. One vote on all scores,
// selected or not, tells whether any is far above its reference or not finite: only then are the selected ones looked
// at before they become weights. Calls for the largest logits also look at every selected score on the way
// (`with_largest`).
#pragma once

#include "attention/output.cuh"
#include "attention/sm90/shared_tile.cuh"
#include "gpu/mma/sm90.cuh"

namespace raggedmla::gpu::sm90 {

/// `with_largest`: keeps the largest selected score of every row.
template <bool with_largest>
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
    if (lane() == 0) {
      shared_.q_taken[q_turn_].arrive();
      shared_.tile_empty[stage].arrive();
    }
    q_turn_ = (q_turn_ + 1) % unsigned{turns};
    queries_ = queries_of(call_, item);
    for (int i = 0; i < 2; ++i) {
      // A row without a query has garbage for scores: no finite one exceeds this. One that is not finite costs the rare
      // path, and changes nothing.
      reference_[i] = shared_.query_of_row[row(i)] < queries_ ? -infinity : infinity;
      if (with_largest && lane() % 4 == 0) shared_.largest[row(i)] = -infinity;
      sum_[i] = 0;
    }
  }

  /// Writes lse and maximum, and hands the output warpgroups what they divide by. Of the four lanes that share a pair
  /// of rows, lane 0 does the first row and lane 1 the second.
  __device__ void finish_item(int item) {
    const AttentionProblem& problem = call_.problem;
    const float sums[2] = {warp_sum(sum_[0], 4), warp_sum(sum_[1], 4)};
    const int i = lane() % 4;
    const float sum = i == 0 ? sums[0] : sums[1];
    const HeadEnd end(i == 0 ? reference_[0] : reference_[1], sum);
    Exchange& exchange = begin_exchange();
    if (i < 2) exchange.row_factor[row(i)] = end.factor(shared_.sink[row(i)]);
    end_exchange();

    const int r = row(i % 2), query = shared_.query_of_row[r];
    if (i >= 2 || query >= queries_) return;
    const std::int64_t t = std::int64_t{item} * call_.queries_per_item + query;
    store_statistics(problem, t, r - query * static_cast<int>(problem.heads), end.lse(),
                     with_largest ? end.max_logit(shared_.largest[r]) : 0.0f);  // seen since end_exchange()
  }

  // ---- tiles -------------------------------------------------------------------------------------------------------
  // Scores in a thread: s[4 g + 2 i + e] is column 8 g + 2 (lane % 4) + e of row(i); `count`, half as many as the tile
  // has rows.

  __device__ void score_tile(int stage, int rows) {
    if (rows > narrow_rows) [[likely]] {
      score_tile<tile_rows>(stage);
    } else {
      score_tile<narrow_rows>(stage);
    }
  }

  /// One tile of 64 or 16 rows.
  template <int rows>
  __device__ void score_tile(int stage) {
    float s[rows / 2];
    fence_async_proxy();  // gathered rows came by cp.async
    multiply(descriptor::k_major(shared_address(shared_.tiles[stage])), s);
    const Selections& selections = shared_.selections[stage];
    const Masks masks(selections, row_queries_);  // loaded while the products run
    products_wait();
    keep_in_registers(s);
    take_turn();
    const std::uint32_t marks = selections.all_marks();
    const bool unusual = any_lane(rises_or_is_not_finite(s));
    Exchange& exchange = begin_exchange();
    std::uint64_t nonfinite = 0;
    bool rescale = false;
    if (unusual) [[unlikely]] {
      if (some_query_skips_rows(selections)) nonfinite = nonfinite_columns(s);
      rescale = raise_references(masks, s, exchange);
    }
    if (lane() == 0) {
      exchange.nonfinite_rows[warp()] = nonfinite;
      exchange.rescale[warp()] = rescale ? 1 : 0;
    }
    if (marks != 0) {
      weigh<true>(s, masks);
      if ((marks & any_repeats) != 0) count_repeats(selections, s);
    } else {
      weigh<false>(s, masks);
    }
    release(stage);
    store(s);
    end_exchange();
    add_up(s);
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

  /// Which of the tile's rows this thread's two rows of q select.
  struct Masks {
    uint2 of_row[2];
    __device__ Masks(const Selections& selections, std::uint32_t row_queries) {
      const auto* masks = reinterpret_cast<const uint2*>(selections.queries);
      of_row[0] = masks[row_queries & 0xFFFFu];
      of_row[1] = masks[row_queries >> 16];
    }
    /// Whether row(i) selects column 8 g + 2 (lane % 4) + e.
    __device__ bool selects(int i, int g, int e) const {
      const std::uint32_t of_lane = (g < 4 ? of_row[i].x : of_row[i].y) >> (2 * (lane_index() % 4));
      return (of_lane >> (8 * (g % 4) + e) & 1) != 0;
    }
  };

  /// Whether a score of this lane, selected or not, is far above the reference, or infinite or NaN.
  template <int count>
  __device__ bool rises_or_is_not_finite(const float (&s)[count]) const {
    const float scale = call_.problem.scale * log2_e;
    float watch[4] = {0, 0, 0, 0};  // stay 0 unless a score is infinite or NaN
#pragma unroll
    for (int j = 0; j < count; ++j) watch[j % 4] = fmaf(s[j], 0.0f, watch[j % 4]);
    bool unusual = (watch[0] + watch[1]) + (watch[2] + watch[3]) != 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float part[2];
#pragma unroll
      for (int g = 0; g < count / 4; ++g) {
        const float pair = fmaxf(s[4 * g + 2 * i], s[4 * g + 2 * i + 1]);
        part[g % 2] = g < 2 ? pair : fmaxf(part[g % 2], pair);
      }
      unusual |= fmaxf(part[0], part[1]) * scale > reference_[i] + lag;
    }
    return unusual;
  }

  __device__ bool some_query_skips_rows(const Selections& selections) const {
    const uint2 mask = reinterpret_cast<const uint2*>(selections.queries)[lane() % max_queries];
    return any_lane((mask.x & mask.y) != 0xFFFFFFFFu && lane() % max_queries < queries_);
  }

  /// Columns without a finite score in all of the warp's rows: since key and value are the same row, a row with a NaN
  /// or an Inf shows so, and a query with one does not.
  template <int count>
  __device__ std::uint64_t nonfinite_columns(const float (&s)[count]) const {
    std::uint32_t finite[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int column = 8 * (j / 4) + j % 2;
      if (fabsf(s[j]) < infinity) finite[column / 32] |= 1u << (column % 32 + 2 * (lane() % 4));
    }
    const std::uint64_t all = count < tile_rows / 2 ? (std::uint64_t{1} << (2 * count % 64)) - 1 : ~std::uint64_t{0};
    return all & ~(static_cast<std::uint64_t>(__reduce_or_sync(all_lanes, finite[1])) << 32 |
                   __reduce_or_sync(all_lanes, finite[0]));
  }

  /// Looks at the selected scores alone: raises the references that lag too far behind them. Returns whether the output
  /// so far must be rescaled, by factors in the exchange.
  template <int count>
  __device__ bool raise_references(const Masks& masks, const float (&s)[count], Exchange& exchange) {
    const float scale = call_.problem.scale * log2_e;
    float factor[2] = {1, 1};
    bool rescale = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = -infinity;
#pragma unroll
      for (int g = 0; g < count / 4; ++g) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (masks.selects(i, g, e)) largest = fmaxf(largest, s[4 * g + 2 * i + e]);
        }
      }
      largest = quad_maximum(largest * scale);
      if (!(largest > reference_[i] + lag)) continue;
      if (reference_[i] != -infinity) {
        factor[i] = exp2_fast(reference_[i] - largest);
        rescale = true;
      }
      reference_[i] = largest;
    }
    if (!any_lane(rescale)) return false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum_[i] *= factor[i];
      if (lane() % 4 == 0) exchange.row_factor[row(i)] = factor[i];
    }
    return true;
  }

  /// Scores become weights, 0 for rows that a query does not select.
  template <bool masked, int count>
  __device__ void weigh(float (&s)[count], const Masks& masks) const {
    const float scale = call_.problem.scale * log2_e;
    const float minus_m[2] = {reference_[0] == -infinity ? 0.0f : -reference_[0],
                              reference_[1] == -infinity ? 0.0f : -reference_[1]};
    float largest[2] = {-infinity, -infinity};
    // The sum is not fused with the product: references are made of rounded products, too, and in huge logits the
    // rounding is huge. Masks come last, where nothing waits for them, unless the largest logit is wanted.
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int i = j / 2 % 2, g = j / 4;
      const bool selected = !masked || masks.selects(i, g, j % 2);
      float logit = __fmul_rn(s[j], scale);
      if (with_largest) {
        logit = selected ? logit : -infinity;
        largest[i] = fmaxf(largest[i], logit);
      }
      const float weight = exp2_fast(__fadd_rn(logit, minus_m[i]));
      s[j] = (with_largest || selected) ? weight : 0.0f;
    }
    if constexpr (with_largest) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        largest[i] = quad_maximum(largest[i]);
        if (lane() % 4 == 0) shared_.largest[row(i)] = fmaxf(shared_.largest[row(i)], largest[i]);
      }
    }
  }

  __device__ static float quad_maximum(float value) {
    value = fmaxf(value, shuffle_xor(value, 1));
    return fmaxf(value, shuffle_xor(value, 2));
  }

  /// A row that a query selects n times has n times the weight.
  template <int count>
  __device__ void count_repeats(const Selections& selections, float (&weights)[count]) const {
    const int shift[2] = {4 * (shared_.query_of_row[row(0)] % max_queries),
                          4 * (shared_.query_of_row[row(1)] % max_queries)};
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const std::uint32_t counts = selections.counts[8 * (j / 4) + 2 * (lane() % 4) + j % 2];
      if (weights[j] != 0) weights[j] *= static_cast<float>(counts >> shift[j / 2 % 2] & 15);
    }
  }

  template <int count>
  __device__ void add_up(const float (&weights)[count]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float part[2] = {0, 0};
#pragma unroll
      for (int g = 0; g < count / 4; ++g) {
        part[0] += weights[4 * g + 2 * i];
        part[1] += weights[4 * g + 2 * i + 1];
      }
      sum_[i] += part[0] + part[1];
    }
  }

  /// Weights to the exchange, as the K-major operand of the second product.
  template <int count>
  __device__ void store(const float (&weights)[count]) const {
    const int fragment_row = 16 * warp() + lane() % 16;
    const std::uint32_t p = shared_address(shared_.probabilities[at_.index]) + fragment_row * 128;
#pragma unroll
    for (int g = 0; g < count / 4; g += 2) {
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
    turn_ = (turn_ + 1) % unsigned{turns};
  }
  __device__ void release(int stage) {
    sync_warp();
    if (lane() == 0) shared_.tile_empty[stage].arrive();
  }

  const QueryTileCall& call_;
  SharedMemory& shared_;
  const int thread_;
  RingPosition<2> at_;  // in the exchange
  unsigned turn_ = 0, q_turn_ = 0;
  int queries_ = 0;            // of the item
  std::uint32_t row_queries_;  // of this thread's two rows, 16 bits each

  std::uint32_t q_[4 * q_register_blocks][4];
  // Base 2: -inf before the first selected row, +inf in rows without a query; this lane's share of the sum of weights.
  float reference_[2], sum_[2];
};

}  // namespace raggedmla::gpu::sm90
