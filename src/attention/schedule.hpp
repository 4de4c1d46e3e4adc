// How a GPU attention call is cut: kernel, tile, parts of a list, grid and scratch. A pure function of shapes and
// device properties, so that what is launched never depends on values in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/problem.hpp"
#include "base/host_device.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla::gpu {

/// What one thread block of the portable kernel works on, and how its warps share the work.
struct TileShape {
  int columns;  // of one matrix product: 8 on NVIDIA GPUs, 16 on CDNA
  int heads;    // of one query
  int rows;     // of the list, at a time
  int warps;
  // Scores [heads, rows] = q . K: warps are arranged as head groups x row_warps x channel_warps. With channel_warps > 1
  // each contracts only a slice of the channels, and the slices are added through shared memory. Outputs [heads, 512]:
  // every warp owns 512 / warps channels of all heads.
  int row_warps;
  int channel_warps;
  int stages;           // row tiles in shared memory
  bool q_in_registers;  // or in shared memory
  int blocks_per_multiprocessor;
  // What this kernel does not do, for the ablation of the bench: a second mask between rows and products, and list
  // entries that are fetched when they are needed.
  bool mask_again = false;
  bool fetch_late = false;
};

/// Byte offsets in the shared memory of a block.
struct TileLayout {
  int stages, q, partial_scores, probabilities, scales, addresses, valid, store_kinds, parts, maxima, factors,
      references, largest, place, bytes;
};

/// Row addresses, scale records and validity live in a ring, from when a tile's slots are resolved until its products
/// are done. Slots are resolved in batches, a row a thread; a warp has at least 32 lanes and never rows of two tiles.
constexpr int batch_tiles(const TileShape& tile) { return tile.rows > 32 ? tile.warps * 32 / tile.rows : tile.warps; }
constexpr int ring_tiles(const TileShape& tile) { return batch_tiles(tile) + tile.stages; }

/// Bytes of the score fragments that warps hand to each other, and later of maxima and sums.
constexpr int exchange_bytes(const TileShape& tile) {
  const int head_warps = tile.warps / (tile.row_warps * tile.channel_warps);
  const int score_tiles = tile.heads / head_warps / 16;
  const int fragments = score_tiles * (tile.rows / tile.row_warps / tile.columns);
  const int kept = score_tiles == 1 && fragments % tile.channel_warps == 0 ? fragments / tile.channel_warps : 0;
  const int scores = tile.channel_warps > 1 ? tile.warps * (fragments - kept) * 16 * tile.columns * 4 : 0;
  const int maxima = 2 * tile.warps * tile.heads * 4;
  return scores > maxima ? scores : maxima;
}

constexpr int probability_pitch(const TileShape& tile) { return tile.rows * 2 + 16; }  // odd in 16-byte units

constexpr TileLayout layout_of(const TileShape& tile) {
  TileLayout at{};
  int end = 0;
  const auto take = [&end](int bytes) {
    const int begin = end;
    end += (bytes + 15) / 16 * 16;
    return begin;
  };
  at.stages = take(tile.stages * tile.rows * 1024);
  at.q = take(tile.q_in_registers ? 0 : tile.heads * 1024);
  at.partial_scores = at.maxima = take(exchange_bytes(tile));
  at.probabilities = take(tile.heads * probability_pitch(tile));
  at.scales = take(ring_tiles(tile) * tile.rows * 8);
  at.addresses = take(ring_tiles(tile) * tile.rows * 8);
  at.valid = take(ring_tiles(tile) * tile.rows / 16 * 4);
  at.store_kinds = take(ring_tiles(tile) * 4);
  at.parts = take(AttentionProblem::max_segments * 40);
  at.factors = take(tile.heads * 4);
  at.references = take(tile.heads * 4);
  at.largest = take(tile.warps * tile.heads * 4);
  at.place = take(20);
  at.bytes = end;
  return at;
}

// columns, heads, rows, warps, row warps, channel warps, stages, q in registers, blocks per multiprocessor
inline constexpr TileShape cuda_tiles[] = {
    {8, 16, 32, 4, 1, 4, 2, true, 3},   // sm_90
    {8, 16, 32, 4, 2, 2, 2, true, 2},   // sm_80 (164 KiB a multiprocessor); sm_86 and sm_89 hold one block
    {8, 32, 32, 4, 2, 1, 2, false, 2},  // sm_90; one block on sm_80
    {8, 32, 16, 4, 2, 1, 3, false, 1},  // sm_86, sm_89: 99 KiB a block
    {8, 64, 64, 8, 2, 1, 2, false, 1},  // sm_90
    {8, 64, 32, 8, 2, 1, 2, false, 1},  // sm_80
};
// 64 KiB of LDS; a warp is a wave of 64 lanes. 64 heads at once would need more registers than a lane has.
inline constexpr TileShape cdna_tiles[] = {
    {16, 16, 16, 4, 1, 4, 2, true, 1},
    {16, 32, 16, 4, 1, 4, 2, true, 1},
};

/// The properties of a device that matter here.
struct DeviceLimits {
  int multiprocessors = 1;
  int lanes = 32;
  int shared_bytes_per_block = 48 << 10;
  int shared_bytes_per_multiprocessor = 48 << 10;
  int compute_major = 0;
};

/// Lists of a query are cut into parts of whole row tiles, equal but for the last, never shorter than this.
inline constexpr std::int64_t shortest_part = 64;

/// Entries of each part of a list of `total` entries when there may be `splits` parts.
RAGGEDMLA_HOST_DEVICE constexpr std::int64_t part_length(std::int64_t total, std::int64_t splits, std::int64_t rows) {
  const std::int64_t even = (total + splits - 1) / splits;
  const std::int64_t whole = (even + rows - 1) / rows * rows;
  return whole < shortest_part ? shortest_part : whole;
}

struct AttentionPlan {
  int tile = 0;  // index in cuda_tiles or cdna_tiles
  TileShape shape{};
  std::int64_t head_groups = 0;
  int splits = 1;
  std::int64_t blocks = 0;  // tokens * head_groups * splits
  // Scratch, only with splits > 1: partial out [T, H, S, 512], lse and maximum [T, H, S] f32, parts [T] i32.
  std::size_t partial_out = 0, partial_lse = 0, partial_max = 0, part_counts = 0, scratch_bytes = 0;
};

AttentionPlan plan_attention(const AttentionProblem& problem, const Schedule& schedule, const DeviceLimits& device);

}  // namespace raggedmla::gpu
