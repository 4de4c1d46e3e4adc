// What the three warpgroups of the single query kernel share: sizes, the ring of row tiles, the exchange of weights,
// and who signals what.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "attention/problem.hpp"
#include "attention/sm90/ring.cuh"
#include "attention/sm90/single_query.hpp"
#include "gpu/barrier.cuh"
#include "gpu/bulk_copy.cuh"
#include "gpu/shared_memory.cuh"

namespace raggedmla::gpu::sm90::single_query {

inline constexpr int group_warps = group_threads / warp_lanes;
inline constexpr int tile_rows = 32;  // cache rows at a time, one a lane of the warp that loads them
inline constexpr int stages = 6;      // row tiles in shared memory

// A row comes by one instruction of the copy engine, 8 lines of 128 bytes, whose 16-byte chunks the engine permutes by
// address: chunk c of line n in shared memory stands at c ^ (n % 8). Rows are 9 lines apart, so that line b of row r is
// line 9 r + b of the tile and eight rows read at one chunk, as matrix loads do, touch all banks once.
inline constexpr int line_bytes = 128;
inline constexpr int row_pitch = width * 2 + line_bytes;
inline constexpr int most_tiles = 2;  // scored together
inline constexpr int weight_pitch = most_tiles * tile_rows * 2 + 16;

// Registers by role: together what 384 threads start with, 168 each.
inline constexpr int score_registers = 200, output_registers = 200, load_registers = 104;

struct StageInfo {
  TileKind kind;
  std::uint32_t valid;  // bit i: row i is a row of the list; the others are zero
};

/// Weights of one or two tiles as the output warpgroup takes them.
struct ExchangeInfo {
  std::uint32_t rescale;  // whether the output so far must be multiplied with `factor` before
  std::uint32_t tiles;
};
struct Exchange {
  alignas(16) unsigned char weights[max_heads * weight_pitch];
  float factor[max_heads];  // what the output so far is multiplied with: before the tiles, or before the store
  alignas(8) ExchangeInfo info;
};

struct SharedMemory {
  alignas(1024) unsigned char tiles[stages][tile_rows * row_pitch];
  Exchange exchange[2];
  float sums[group_warps][max_heads];         // of the weights that each score warp has computed
  float maxima[group_warps][max_heads];       // likewise of scores
  float largest[group_warps][warp_lanes][2];  // scores of the whole list, by lane and its two heads; when asked for
  alignas(8) StageInfo info[stages];
  Barrier tile_full[stages], tile_empty[stages];
  Barrier scores_full[2], scores_empty[2];
};
static_assert(tile_rows * row_pitch % 1024 == 0, "lines of a tile count from a multiple of eight");
static_assert(sizeof(SharedMemory) <= 232448, "a block has 227 KiB");

// Arrivals that complete a phase: the lane that announces a tile's bytes; every warp that reads.
inline constexpr int tile_full_arrivals = 1, tile_empty_arrivals = 2 * group_warps;
inline constexpr int scores_full_arrivals = group_warps, scores_empty_arrivals = group_warps;

/// Id of the barrier within the score warpgroup (0 is __syncthreads).
inline constexpr int score_barrier = 1;

/// Shared memory by its address: one register, where the compiler would compute pointers again and again.
class SharedMap {
 public:
  __device__ explicit SharedMap(SharedMemory& memory) : base_(shared_address(&memory)) {
    asm volatile("" : "+r"(base_));
  }
  __device__ SharedAddress tile(int stage) const {
    return at(offsetof(SharedMemory, tiles), stage, tile_rows * row_pitch);
  }
  __device__ SharedAddress info(int stage) const { return at(offsetof(SharedMemory, info), stage, sizeof(StageInfo)); }
  __device__ BarrierAt tile_full(int stage) const {
    return {at(offsetof(SharedMemory, tile_full), stage, sizeof(Barrier))};
  }
  __device__ BarrierAt tile_empty(int stage) const {
    return {at(offsetof(SharedMemory, tile_empty), stage, sizeof(Barrier))};
  }
  __device__ BarrierAt scores_full(int i) const {
    return {at(offsetof(SharedMemory, scores_full), i, sizeof(Barrier))};
  }
  __device__ BarrierAt scores_empty(int i) const {
    return {at(offsetof(SharedMemory, scores_empty), i, sizeof(Barrier))};
  }
  __device__ SharedAddress weights(int i) const { return exchange(i) + offsetof(Exchange, weights); }
  __device__ SharedAddress factor(int i, int head) const { return exchange(i) + offsetof(Exchange, factor) + head * 4; }
  __device__ SharedAddress exchange_info(int i) const { return exchange(i) + offsetof(Exchange, info); }
  __device__ SharedAddress sum(int warp, int head) const {
    return at(offsetof(SharedMemory, sums), warp * max_heads + head, 4);
  }
  __device__ SharedAddress maximum(int warp, int head) const {
    return at(offsetof(SharedMemory, maxima), warp * max_heads + head, 4);
  }
  __device__ SharedAddress largest(int warp, int lane, int i) const {
    return at(offsetof(SharedMemory, largest), (warp * warp_lanes + lane) * 2 + i, 4);
  }

 private:
  __device__ SharedAddress exchange(int i) const { return at(offsetof(SharedMemory, exchange), i, sizeof(Exchange)); }
  __device__ SharedAddress at(std::size_t offset, int index, std::size_t bytes) const {
    return base_ + static_cast<SharedAddress>(offset) +
           static_cast<SharedAddress>(index) * static_cast<SharedAddress>(bytes);
  }
  SharedAddress base_;
};

struct Call {
  AttentionProblem problem;
  bool wide_stores = false;                          // output rows allow 16-byte (bf16) or 8-byte (f32) stores
  CUtensorMap rows[AttentionProblem::max_segments];  // (channel of line, line, row of page, page)
  CUtensorMap q;                                     // (channel of line, line, head, query)
};

/// Byte offset in a tile of chunk `chunk` (of 64) of row `row`.
__device__ inline SharedAddress chunk_offset(int row, int chunk) {
  const int line = chunk / 8;
  return static_cast<SharedAddress>(row * row_pitch + line * line_bytes + (((chunk ^ (row + line)) & 7) << 4));
}

/// The queries of a block: neighbouring blocks have neighbouring ones.
__device__ inline int first_query() { return static_cast<int>(blockIdx.x); }
__device__ inline int next_query(int t) { return t + static_cast<int>(gridDim.x); }

/// One lane for the warp, after all lanes are done.
__device__ inline void arrive_as_warp(BarrierAt barrier) {
  sync_warp();
  if (lane_index() == 0) barrier.arrive();
}

}  // namespace raggedmla::gpu::sm90::single_query
