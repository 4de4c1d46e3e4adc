// Where rows start in a ragged list, without a second launch and without blocks that wait for each other: every block
// sums the lengths of all rows before its own by itself. They come from L2: 32 KiB for 8,192 rows, read while the
// block's first entries are on their way.
#pragma once

#include "gpu/warp.cuh"
#include "row_lists/problem.hpp"

namespace raggedmla::gpu {

inline constexpr int most_threads = 512;
inline constexpr int most_warps = most_threads / 32;

/// Shared memory of BlockOffsets.
struct OffsetStorage {
  std::int64_t before[most_warps];  // per warp: what its threads found ahead of the block's rows
  std::int64_t sums[most_warps];    // per warp: its rows of the tile
  std::int64_t begins[most_threads];
};

/// Offsets of tile after tile of rows, one row per thread. All threads of the block call all functions.
class BlockOffsets {
 public:
  __device__ explicit BlockOffsets(OffsetStorage& storage) : storage_(storage) {}

  /// Adds up `length(t)` for t in [0, rows); takes effect in the next tile().
  template <class Length>
  __device__ void skip(std::int64_t rows, const Length& length) {
#pragma unroll 4
    for (std::int64_t t = threadIdx.x; t < rows; t += blockDim.x) skipped_ += length(t);
  }

  /// Scans the tile's lengths and returns where the thread's row begins. `begin(i)` then knows all rows of the tile.
  __device__ std::int64_t tile(std::int64_t length) {
    const std::int64_t inclusive = warp_inclusive_sum(length), before = warp_sum(skipped_);
    __syncthreads();  // the last tile's offsets have been read
    if (lane_index() == warp_lanes - 1) {
      storage_.before[warp_index()] = before;
      storage_.sums[warp_index()] = inclusive;
    }
    __syncthreads();
    std::int64_t begin = base_ + inclusive - length, total = 0;
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / warp_lanes; ++warp) {
      begin += storage_.before[warp] + (warp < warp_index() ? storage_.sums[warp] : 0);
      total += storage_.before[warp] + storage_.sums[warp];
    }
    base_ += total;
    skipped_ = 0;
    storage_.begins[threadIdx.x] = begin;
    __syncthreads();
    return begin;
  }

  __device__ std::int64_t begin(int row_of_tile) const { return storage_.begins[row_of_tile]; }

 private:
  OffsetStorage& storage_;
  std::int64_t base_ = 0;
  std::int64_t skipped_ = 0;
};

/// Enough blocks for `items` warp-sized pieces of work, at most what a device holds at a time.
struct LaunchShape {
  dim3 grid, block;
};
inline LaunchShape shape_for(std::int64_t items, const Properties& device) {
  // Few items: small blocks, so that they spread over all multiprocessors.
  const std::int64_t multiprocessors = device.multiprocessors;
  const int threads = items <= 8 * multiprocessors ? 128 : most_threads;
  const int resident = 2 * most_threads / threads;  // blocks per multiprocessor
  const std::int64_t warps = threads / device.lanes;
  const std::int64_t blocks = clamp_index((items + warps - 1) / warps, 1, resident * multiprocessors);
  return {dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads))};
}

/// The block's contiguous share of `items`.
struct Share {
  std::int64_t begin, end;
};
__device__ inline Share share_of_block(std::int64_t items) {
  const std::int64_t each = (items + gridDim.x - 1) / gridDim.x;
  const std::int64_t begin = smaller(each * blockIdx.x, items);
  return {begin, smaller(begin + each, items)};
}

}  // namespace raggedmla::gpu
