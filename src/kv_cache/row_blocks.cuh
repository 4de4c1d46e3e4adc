// How the cache kernels divide rows. A bf16 row of 512 channels is 64 chunks of 16 bytes, and a group of 64 channels is
// eight of them, so 64 threads (a "team") move a row, one chunk each, and eight neighbouring lanes share a scale.
// Nothing else depends on how many lanes execute together: a team is two warps on NVIDIA GPUs and one wave on CDNA.
//
//     block:  find the slots of its rows, one thread per row   ->  shared memory
//             the teams take turns at the rows: load, load, ... then convert and store, store, ...
#pragma once

#include "gpu/runtime.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla::gpu {

inline constexpr int chunk_channels = 8;
inline constexpr int team_threads = v4_row.query_width / chunk_channels;
inline constexpr int nope_threads = v4_row.nope_width / chunk_channels;  // the other eight move the rope channels
inline constexpr int group_threads = v4_row.group_width / chunk_channels;
inline constexpr int most_rows_per_block = 64;

struct RowGrid {
  unsigned blocks;
  int rows_per_block;
};

/// Enough blocks to give every multiprocessor its share, then longer ones.
inline RowGrid row_grid(std::int64_t rows, int teams, int multiprocessors, int blocks_per_multiprocessor) {
  const std::int64_t fill_blocks = std::int64_t{multiprocessors} * blocks_per_multiprocessor;
  const std::int64_t fill = (rows + fill_blocks - 1) / fill_blocks;
  const std::int64_t per_team = (fill + teams - 1) / teams;
  const std::int64_t per_block = per_team < most_rows_per_block / teams ? per_team * teams : most_rows_per_block;
  // The grid is at most 2^31 - 1 blocks; kernels walk on in steps of the grid.
  const std::int64_t blocks = (rows + per_block - 1) / per_block;
  return {static_cast<unsigned>(blocks < 0x7FFFFFFF ? blocks : 0x7FFFFFFF), static_cast<int>(per_block)};
}

/// The thread's place in its team, and its team in the block.
__device__ inline int team_lane() { return static_cast<int>(threadIdx.x) % team_threads; }
__device__ inline int team_index() { return static_cast<int>(threadIdx.x) / team_threads; }

}  // namespace raggedmla::gpu
