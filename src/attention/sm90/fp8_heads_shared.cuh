// What the warpgroups of the fp8 kernel share: sizes, the ring of decoded tiles, the landing places of raw rows, and
// who signals what.
#pragma once

#include "attention/list_parts.cuh"
#include "attention/merge.hpp"
#include "attention/sm90/shared_tile.cuh"

namespace raggedmla::gpu::sm90::fp8_heads {

inline constexpr int heads = 64;             // of a block: the M of its products
inline constexpr int stages = 2;             // decoded tiles of 64 rows
inline constexpr int q_register_blocks = 2;  // column blocks of q that stay in registers, 16 registers a thread each
inline constexpr int q_shared_blocks = width / block_columns - q_register_blocks;

inline constexpr int exchanges = 1;  // of probabilities; with two, q would not fit

// Raw rows land in batches, each warp's own. A pitch of whole 128 bytes lets lanes read two rows at a time from all
// banks.
inline constexpr int load_warps = group_threads / warp_lanes;
inline constexpr int rows_of_warp = tile_rows / load_warps;
inline constexpr int batch_rows = 4;
inline constexpr int batches_of_tile = rows_of_warp / batch_rows;
inline constexpr int landing_pitch = 640;

// By role; all threads start with 128 registers. 80 + 112 + 2 * 160 = 512 is all there is.
inline constexpr int load_registers = 80, score_registers = 112, output_registers = 160;

/// Weights of one tile as the output warpgroups take them, and what they multiply their sums with before: the tile, or
/// at the end the store.
struct Exchange {
  float row_factor[heads];
  std::uint32_t rescale[4];  // by score warp: whether row_factor is anything but 1
};

struct SharedMemory {
  alignas(1024) unsigned char tiles[stages][tile_bytes];
  alignas(1024) unsigned char q[q_shared_blocks * block_bytes];
  alignas(1024) unsigned char probabilities[exchanges][block_bytes];
  alignas(128) unsigned char landing[load_warps][batches_of_tile][batch_rows * landing_pitch];
  alignas(16) unsigned char scales[load_warps][2][2 * rows_of_warp][8];  // of pairs of tiles in turn
  std::uint16_t valid[stages][load_warps];                               // bit i: row i of the warp's 16 is a row
  Exchange exchange[exchanges];
  ListPart parts[AttentionProblem::max_segments];
  int part_count;
  Barrier tile_full[stages], tile_empty[stages];
  Barrier scores_full[exchanges], scores_empty[exchanges];
  Barrier q_taken;  // q travels through the last stage
};
static_assert(sizeof(SharedMemory) <= 232448, "a block has 227 KiB");

// Arrivals that complete a phase: warps that have written, warps that have read.
inline constexpr int tile_full_arrivals = load_warps, tile_empty_arrivals = 12;
inline constexpr int scores_full_arrivals = 4, scores_empty_arrivals = 8;
inline constexpr int q_taken_arrivals = 4;

/// What a block works on.
struct Place {
  int t, first_head;
  int split, splits;
};

/// One arrival of the warp, after all its lanes are done.
__device__ inline void arrive_as_warp(Barrier& barrier) {
  sync_warp();
  if (lane_index() == 0) barrier.arrive();
}

}  // namespace raggedmla::gpu::sm90::fp8_heads
