// The two output warpgroups: O += P V, each for half of the channels, all 64 rows in its registers; and the store.
#pragma once

#include "attention/sm90/output_rows.cuh"
#include "attention/sm90/shared_tile.cuh"
#include "gpu/mma/sm90.cuh"

namespace raggedmla::gpu::sm90 {

class OutputGroup {
 public:
  /// `half` 0 or 1: which 256 channels.
  __device__ OutputGroup(const QueryTileCall& call, SharedMemory& shared, int half)
      : call_(call), shared_(shared), half_(half), thread_(static_cast<int>(threadIdx.x) % group_threads) {}

  __device__ void run() {
    int item = -1;
    await_turn();  // from here on of the entry after this one
    for (RingPosition<stages> at;; at.advance()) {
      random_delay(4);
      shared_.tile_full[at.index].wait(at.parity);
      const StageInfo info = shared_.info[at.index];
      if (info.kind == TileKind::rows) {
        accumulate(at.index, info.rows);
        continue;
      }
      if (info.kind == TileKind::queries) await_taken_q();
      if (item >= 0) store_item(item, at.index);
      release(shared_.tile_empty[at.index]);
      if (info.kind == TileKind::end) return;
      await_turn();
      item = item < 0 ? items_begin(call_) : next_item(item);
      begun_ = false;
    }
  }

 private:
  static constexpr int channels = width / 2, count = channels / 2;

  __device__ int warp() const { return thread_ / warp_lanes; }
  __device__ int lane() const { return thread_ % warp_lanes; }
  __device__ int row(int i) const { return 16 * warp() + lane() / 4 + 8 * i; }

  /// Waits until the score warpgroup is done with the matrix units for the next entry of the ring.
  __device__ void await_turn() {
    shared_.multiplied[turn_.index].wait(turn_.parity);
    turn_.advance();
  }

  /// Waits until the score warpgroup has q and the stage is free for an output to pass through. Also before the first
  /// item: a barrier of which a phase is missed cannot be told from the one before.
  __device__ void await_taken_q() {
    shared_.q_taken[q_turn_.index].wait(q_turn_.parity);
    q_turn_.advance();
  }

  // ---- tiles -------------------------------------------------------------------------------------------------------

  __device__ void accumulate(int stage, int rows) {
    shared_.scores_full[at_.index].wait(at_.parity);
    const Exchange& exchange = shared_.exchange[at_.index];
    if (exchange.rescale[warp()] != 0 && begun_) scale_rows(exchange);
    const std::uint64_t nonfinite = exchange.nonfinite_rows[0] & exchange.nonfinite_rows[1] &
                                    exchange.nonfinite_rows[2] & exchange.nonfinite_rows[3];
    if (nonfinite != 0) clear_rows(stage, nonfinite);

    await_turn();
    fence_async_proxy();  // gathered rows came by cp.async
    const std::uint32_t v = shared_address(shared_.tiles[stage]) + half_ * (tile_bytes / 2);
    if (rows > narrow_rows) {
      multiply<tile_rows / 16>(v);
    } else {
      multiply<narrow_rows / 16>(v);
    }
    begun_ = true;
    release(shared_.tile_empty[stage]);
    release(shared_.scores_empty[at_.index]);
    at_.advance();
  }

  template <int steps>
  __device__ void multiply(std::uint32_t tile) {
    const std::uint64_t p = descriptor::k_major(shared_address(shared_.probabilities[at_.index]));
    const std::uint64_t v = descriptor::transposed(tile, block_bytes);
    keep_in_registers(o_);
    products_begin();
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      const std::uint64_t a = descriptor::advance(p, k * k_step_bytes);
      const std::uint64_t b = descriptor::advance(v, k * transposed_k_step_bytes);
      product_transposed<0>(o_, a, b, begun_ || k > 0);
      product_transposed<count / 2>(o_, a, descriptor::advance(b, 2 * block_bytes), begun_ || k > 0);
    }
    products_commit();
    products_wait();
    keep_in_registers(o_);
  }

  __device__ void scale_rows(const Exchange& exchange) {
    const float factor[2] = {exchange.row_factor[row(0)], exchange.row_factor[row(1)]};
#pragma unroll
    for (int j = 0; j < count; ++j) o_[j] *= factor[j / 2 % 2];
  }

  __device__ void clear() {
#pragma unroll
    for (int j = 0; j < count; ++j) o_[j] = 0;
  }

  /// A row with a NaN or an Inf must not reach queries that do not select it, and 0 * NaN is NaN. So it counts as zeros
  /// here. Queries that do select it have a NaN as its weight and get their NaN all the same (or 0, where an Inf scores
  /// -inf).
  __device__ void clear_rows(int stage, std::uint64_t nonfinite) {
    unsigned char* tile = shared_.tiles[stage] + half_ * (tile_bytes / 2);
    for (std::uint64_t left = nonfinite; left != 0; left &= left - 1) {
      const int r = __ffsll(static_cast<long long>(left)) - 1;
      if (thread_ < warp_lanes) {
        *reinterpret_cast<uint4*>(tile + thread_ / 8 * block_bytes + swizzled(r, thread_ % 8)) = uint4{0, 0, 0, 0};
      }
    }
    fence_async_proxy();
    synchronize_group();
  }

  // ---- the store ---------------------------------------------------------------------------------------------------

  __device__ void store_item(int item, int stage) {
    shared_.scores_full[at_.index].wait(at_.parity);
    if (!begun_) clear();
    scale_rows(shared_.exchange[at_.index]);
    release(shared_.scores_empty[at_.index]);
    at_.advance();
    if (call_.problem.cos_sin != nullptr && half_ == 1) {
      rotate_row<0>(item);
      rotate_row<1>(item);
    }
    if (call_.out_by_copy_engine) {
      store_by_copy_engine(item, stage);
    } else {
      store_row_from_registers<0>(item);
      store_row_from_registers<1>(item);
    }
  }

  /// Through a stage of the ring. Straight from the registers, a store would touch eight rows at a time. The box holds
  /// the item's heads and queries and its map ends with the last token, so rows without a query stay here.
  __device__ void store_by_copy_engine(int item, int stage) {
    const std::uint32_t from = shared_address(shared_.tiles[stage]) + half_ * (tile_bytes / 2);
    const std::uint32_t lane_row = from + (16 * warp() + lane() % 16) * 128;
#pragma unroll
    for (int g = 0; g < channels / 8; g += 2) {
      const float* o = o_ + 4 * g;
      const int chunk = (g % 8 + lane() / 16) ^ (lane() & 7);  // swizzled(), in fewer registers
      store_fragments(lane_row + g / 8 * block_bytes + (chunk << 4), pack_bf16(o[0], o[1]), pack_bf16(o[2], o[3]),
                      pack_bf16(o[4], o[5]), pack_bf16(o[6], o[7]));
    }
    fence_async_proxy();
    synchronize_group();
    if (thread_ != 0) return;
#pragma unroll
    for (int b = 0; b < channels / block_columns; ++b) {
      store_box(call_.out_map, half_ * channels + b * block_columns, 0, item * call_.queries_per_item,
                from + b * block_bytes);
    }
    wait_for_bulk_stores();
  }

  __device__ int query(int i) const { return shared_.query_of_row[row(i)]; }
  __device__ bool is_valid(int item, int i) const { return query(i) < queries_of(call_, item); }
  __device__ std::int64_t token(int item, int i) const {
    return std::int64_t{item} * call_.queries_per_item + query(i);
  }
  /// Element e of the two channels that this thread has of row(i) in group g of 8 (output_rows.cuh).
  template <int i>
  __device__ float& value(int g, int e) {
    return o_[4 * g + 2 * i + e];
  }

  template <int i>
  __device__ void rotate_row(int item) {
    if (!is_valid(item, i)) return;
    rotate_back<channels / 8 - 8>(call_.problem, token(item, i),
                                  [&](int g, int e) -> float& { return value<i>(g, e); });
  }

  template <int i>
  __device__ void store_row_from_registers(int item) {
    const AttentionProblem& problem = call_.problem;
    const int h = row(i) - query(i) * static_cast<int>(problem.heads);
    const bool valid = is_valid(item, i);
    const auto get = [&](int g, int e) { return value<i>(g, e); };
    const std::int64_t offset =
        token(item, i) * problem.out_stride_token + h * problem.out_stride_head + half_ * channels;
    if (problem.out_is_f32) {
      store_row<channels / 8>(static_cast<float*>(problem.out) + offset, valid, call_.wide_stores, get);
    } else {
      store_row<channels / 8>(static_cast<std::uint16_t*>(problem.out) + offset, valid, call_.wide_stores, get);
    }
  }

  __device__ void synchronize_group() const {
    if (half_ == 0) synchronize(output_barrier, group_threads);
    else synchronize(output_barrier + 1, group_threads);
  }
  __device__ void release(Barrier& barrier) {
    sync_warp();
    if (lane() == 0) barrier.arrive();
  }

  const QueryTileCall& call_;
  SharedMemory& shared_;
  const int half_, thread_;
  RingPosition<2> at_;  // in the exchange
  RingPosition<turns> turn_, q_turn_;
  bool begun_ = false;  // whether o_ holds anything
  float o_[count];      // o_[4 g + 2 i + e]: channel 8 g + 2 (lane % 4) + e of row(i)
};

}  // namespace raggedmla::gpu::sm90
