// Where rows start in a ragged list, found within the launch that writes the list. A block owns a contiguous range of
// rows and needs the number of entries before it:
//
//     SummedOffsets    it adds up the lengths of all rows before its own. No state, but work that grows with the number
//                      of blocks: for lengths that are a load away, or few rows.
//     ArrivalOffsets   blocks tell each other their totals through the counter area of the workspace.
#pragma once

#include "base/workspace.hpp"
#include "gpu/warp.cuh"
#include "row_lists/problem.hpp"

namespace raggedmla::gpu {

inline constexpr int most_threads = 512;
inline constexpr int most_warps = most_threads / 32;

struct OffsetStorage {
  std::int64_t warp_sums[most_warps];
  std::int64_t begins[most_threads];
  unsigned ticket;
  bool last;
};

/// Scans tile after tile of rows, one row per thread. All threads of the block call all functions.
class BlockOffsets {
 public:
  __device__ explicit BlockOffsets(OffsetStorage& storage) : storage_(storage) {}

  /// Scans the tile's lengths and returns where the thread's row begins. `begin(i)` then knows all rows of the tile.
  __device__ std::int64_t tile(std::int64_t length) {
    const std::int64_t inclusive = warp_inclusive_sum(length);
    if (lane_index() == warp_lanes - 1) storage_.warp_sums[warp_index()] = inclusive;
    __syncthreads();
    std::int64_t begin = base_ + inclusive - length;
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / warp_lanes; ++warp) {
      const std::int64_t sum = storage_.warp_sums[warp];
      if (warp < warp_index()) begin += sum;
      base_ += sum;
    }
    storage_.begins[threadIdx.x] = begin;
    __syncthreads();
    return begin;
  }

  __device__ std::int64_t begin(int row_of_tile) const { return storage_.begins[row_of_tile]; }

 protected:
  /// The sum over the block's threads, known to all of them.
  __device__ std::int64_t block_sum(std::int64_t value) {
    value = warp_sum(value);
    if (lane_index() == 0) storage_.warp_sums[warp_index()] = value;
    __syncthreads();
    std::int64_t sum = 0;
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / warp_lanes; ++warp) sum += storage_.warp_sums[warp];
    __syncthreads();
    return sum;
  }

  OffsetStorage& storage_;
  std::int64_t base_ = 0;
};

/// Nothing to count in the first place: dense outputs, and ragged ones by SummedOffsets.
struct NoState {};

/// Part `part` of `parts` of the entries of rows [0, rows).
template <class List>
__device__ std::int64_t entries_of_rows(const List& list, std::int64_t rows, int part, int parts) {
  std::int64_t sum = 0;
  for (std::int64_t t = part; t < rows; t += parts) sum += list.row(t).length;
  return sum;
}

/// Packed i32 lengths of a dense list: four to a load, eight loads in flight, a few instructions each.
__device__ inline std::int64_t entries_of_rows(const DenseList& list, std::int64_t rows, int part, int parts) {
  if (!list.lengths) return part == 0 ? rows * list.width : 0;
  const bool packed = !list.lengths.wide && list.lengths.stride0 == 1;
  if (!packed || rows > (1 << 30) || list.width > (1 << 28)) {
    return entries_of_rows<DenseList>(list, rows, part, parts);
  }
  const auto* lengths = static_cast<const std::int32_t*>(list.lengths.data);
  const int count = static_cast<int>(rows), width = static_cast<int>(list.width);
  const auto clamped = [width](int length) { return length < 0 ? 0 : (length > width ? width : length); };
  const int unaligned = static_cast<int>(-(reinterpret_cast<std::uintptr_t>(lengths) / sizeof(std::int32_t)) % 4);
  const int head = unaligned < count ? unaligned : count, vectors = (count - head) / 4, tail = head + 4 * vectors;
  const auto* fours = reinterpret_cast<const int4*>(lengths + head);
  std::int64_t sum = 0;
  constexpr int in_flight = 8;
  for (int start = part; start < vectors; start += in_flight * parts) {
    int4 loaded[in_flight];
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      loaded[i] = start + i * parts < vectors ? fours[start + i * parts] : make_int4(0, 0, 0, 0);
    }
#pragma unroll
    for (const int4& four : loaded) sum += clamped(four.x) + clamped(four.y) + clamped(four.z) + clamped(four.w);
  }
  if (part < head) sum += clamped(lengths[part]);
  if (part < count - tail) sum += clamped(lengths[tail + part]);
  return sum;
}

class SummedOffsets : public BlockOffsets {
 public:
  using State = NoState;
  __device__ SummedOffsets(OffsetStorage& storage, State) : BlockOffsets(storage) {}

  __device__ unsigned block() const { return blockIdx.x; }

  /// Finds the entries before row `first`.
  template <class List>
  __device__ void start(const List& list, std::int64_t first, std::int64_t) {
    base_ = block_sum(entries_of_rows(list, first, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)));
  }
};

/// The counter area as ArrivalOffsets uses it; zero before and after.
struct Arrivals {
  static constexpr std::int64_t most_blocks = static_cast<std::int64_t>(counter_area_bytes / sizeof(std::uint64_t)) - 1;
  std::uint32_t tickets;
  std::uint32_t finished;
  unsigned long long totals[most_blocks];  // a block's entries + 1; 0 = not yet known
};

/// A block takes its rows by ticket and waits only for the totals of blocks with earlier tickets, which are running:
/// no order of scheduling can make it wait forever, and which block serves a ticket changes no result.
class ArrivalOffsets : public BlockOffsets {
 public:
  using State = Arrivals*;
  __device__ ArrivalOffsets(OffsetStorage& storage, State arrivals) : BlockOffsets(storage), arrivals_(arrivals) {
    if (threadIdx.x == 0) storage.ticket = atomicAdd(&arrivals->tickets, 1u);
    __syncthreads();
  }

  __device__ unsigned block() const { return storage_.ticket; }

  template <class List>
  __device__ void start(const List& list, std::int64_t first, std::int64_t end) {
    std::int64_t own = 0;
    for (std::int64_t t = first + threadIdx.x; t < end; t += blockDim.x) own += list.row(t).length;
    start_with(own);
  }

  /// `own`: the thread's part of the entries of the block's rows.
  __device__ void start_with(std::int64_t own) {
    const std::int64_t total = block_sum(own);
    if (threadIdx.x == 0) atomicExch(&arrivals_->totals[block()], static_cast<unsigned long long>(total) + 1);
    std::int64_t before = 0;
    for (unsigned other = threadIdx.x; other < block(); other += blockDim.x) {
      const volatile unsigned long long* published = &arrivals_->totals[other];
      unsigned long long value = 0;
      while (value == 0) value = *published;
      before += static_cast<std::int64_t>(value - 1);
    }
    base_ = block_sum(before);
    leave();
  }

 private:
  /// The last block to get here leaves the counters zero.
  __device__ void leave() {
    if (threadIdx.x == 0) {
      __threadfence();
      storage_.last = atomicAdd(&arrivals_->finished, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!storage_.last) return;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) arrivals_->totals[i] = 0;
    if (threadIdx.x == 0) arrivals_->tickets = arrivals_->finished = 0;
  }

  Arrivals* arrivals_;
};

/// How `rows` rows of `segments` warp-sized pieces each are dealt out.
struct RowLaunch {
  dim3 grid, block;
  std::int64_t rows_per_block;
};
inline RowLaunch launch_for(std::int64_t rows, std::int64_t segments, const Properties& device) {
  // Little work: small blocks, so that it spreads over all multiprocessors.
  const std::int64_t items = rows * segments, multiprocessors = device.multiprocessors;
  const int threads = items <= 8 * multiprocessors ? 128 : most_threads;
  const std::int64_t warps = threads / device.lanes;
  const std::int64_t resident = smaller(2 * most_threads / threads * multiprocessors, Arrivals::most_blocks);
  const std::int64_t wanted = clamp_index((items + warps - 1) / warps, 1, resident);
  const std::int64_t rows_per_block = rows > wanted ? (rows + wanted - 1) / wanted : 1;
  const std::int64_t blocks = rows > 0 ? (rows + rows_per_block - 1) / rows_per_block : 1;
  return {dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), rows_per_block};
}

}  // namespace raggedmla::gpu
