// Where rows start in a ragged list, found within the launch that writes the list. A block owns a contiguous range of
// rows and needs the number of entries before it:
//
//     SummedOffsets    it adds up the lengths of all rows before its own. No state, but work that grows with the number
//                      of blocks: for lengths that are a load away, or few rows.
//     MailedOffsets    blocks tell each other their totals through the counter area of the workspace.
#pragma once

#include "base/workspace.hpp"
#include "gpu/warp.cuh"
#include "row_lists/problem.hpp"

namespace raggedmla::gpu {

inline constexpr int most_threads = large_block_threads;
inline constexpr int most_warps = most_threads / 32;

struct OffsetStorage {
  std::int64_t warp_sums[most_warps];
  std::int64_t begins[most_threads];
};

/// Scans tile after tile of rows, one row per thread. All threads of the block call all functions.
class BlockOffsets {
 public:
  __device__ explicit BlockOffsets(OffsetStorage& storage) : storage_(storage) {}

  /// Entries before the block's first row.
  __device__ std::int64_t base() const { return base_; }

  /// Scans the tile's lengths and returns where the thread's row begins. `begin(i)` then knows all rows of the tile.
  __device__ std::int64_t tile(std::int64_t length) {
    const std::int64_t inclusive = warp_inclusive_sum(length);
    if (lane_index() == warp_lanes - 1) storage_.warp_sums[warp_index()] = inclusive;
    __syncthreads();
    const std::int64_t sum = warp_sums();
    const std::int64_t begin = base_ + warp_sum(lane_index() < warp_index() ? sum : 0) + inclusive - length;
    base_ += warp_sum(sum);
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
    const std::int64_t sum = warp_sum(warp_sums());
    __syncthreads();
    return sum;
  }

  OffsetStorage& storage_;
  std::int64_t base_ = 0;

 private:
  /// Lane i: what warp i has stored.
  __device__ std::int64_t warp_sums() const {
    return lane_index() < static_cast<int>(blockDim.x) / warp_lanes ? storage_.warp_sums[lane_index()] : 0;
  }
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

  /// Finds the entries before row `first`.
  template <class List>
  __device__ void start(const List& list, std::int64_t first, std::int64_t, std::int64_t) {
    base_ = block_sum(entries_of_rows(list, first, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)));
  }
};

/// The counter area as MailedOffsets uses it, zero before and after: a word for every pair of a block and one before
/// it, in which the earlier leaves its total for the later. A word has one writer and one reader, who clears it, so
/// that no counter says when all is read, and no two blocks wait for the same line.
struct Mailboxes {
  static constexpr std::int64_t most_blocks = 181;  // 16,290 words
  static constexpr std::uint32_t given_up = 1, first_total = 2;
  static constexpr std::int64_t largest_total = 0xFFFFFFFF - first_total;

  std::uint32_t words[most_blocks * (most_blocks - 1) / 2];

  __device__ std::uint32_t& word(unsigned reader, unsigned writer) { return words[reader * (reader - 1) / 2 + writer]; }
};
static_assert(sizeof(Mailboxes) <= counter_area_bytes);

/// Every block sends the entries of its rows to the blocks behind it and adds up what it is sent. Where nothing comes
/// in time (nothing says that the other block is running), the reader gives the word up, which the writer then clears,
/// and counts in the other's stead: no order of scheduling can make a block wait forever, and who counted changes no
/// result.
class MailedOffsets : public BlockOffsets {
 public:
  using State = Mailboxes*;
  __device__ MailedOffsets(OffsetStorage& storage, State boxes) : BlockOffsets(storage), boxes_(*boxes) {}

  template <class List>
  __device__ void start(const List& list, std::int64_t first, std::int64_t end, std::int64_t rows_per_block) {
    std::int64_t own = 0;
    for (std::int64_t t = first + threadIdx.x; t < end; t += blockDim.x) own += list.row(t).length;
    start_with(own, [&](unsigned block) {
      const std::int64_t begin = block * rows_per_block;
      std::int64_t sum = 0;
      for (std::int64_t t = begin; t < begin + rows_per_block; ++t) sum += list.row(t).length;
      return sum;
    });
  }

  /// `own`: the thread's part of the entries of the block's rows. `count(block)`: all entries of another block's rows,
  /// called by one thread.
  template <class Count>
  __device__ void start_with(std::int64_t own, const Count& count) {
    if (gridDim.x == 1) return;
    const std::uint32_t total = static_cast<std::uint32_t>(block_sum(own)) + Mailboxes::first_total;
    std::uint32_t before_sending[words_per_thread], received[words_per_thread];
#pragma unroll
    for (int i = 0; i < words_per_thread; ++i) {
      const unsigned reader = blockIdx.x + 1 + threadIdx.x + i * blockDim.x;
      before_sending[i] = reader < gridDim.x ? atomicExch(&boxes_.word(reader, blockIdx.x), total) : 0;
    }
#pragma unroll
    for (int i = 0; i < words_per_thread; ++i) {
      const unsigned writer = threadIdx.x + i * blockDim.x;
      received[i] = writer < blockIdx.x ? peek(writer) : Mailboxes::first_total;
    }
    std::int64_t before = 0;
#pragma unroll
    for (int i = 0; i < words_per_thread; ++i) {
      const unsigned writer = threadIdx.x + i * blockDim.x;
      if (writer >= blockIdx.x) continue;
      std::uint32_t& word = boxes_.word(blockIdx.x, writer);
      for (int poll = 0; received[i] == 0 && poll < patience; ++poll) received[i] = peek(writer);
      if (received[i] == 0) received[i] = atomicCAS(&word, 0u, Mailboxes::given_up);
      if (received[i] == 0) {
        before += count(writer);
      } else {
        before += received[i] - Mailboxes::first_total;
        word = 0;
      }
    }
#pragma unroll
    for (int i = 0; i < words_per_thread; ++i) {
      const unsigned reader = blockIdx.x + 1 + threadIdx.x + i * blockDim.x;
      if (before_sending[i] == Mailboxes::given_up) boxes_.word(reader, blockIdx.x) = 0;
    }
    base_ = block_sum(before);
  }

 private:
  static constexpr int least_threads = 64;
  static constexpr int words_per_thread = (Mailboxes::most_blocks + least_threads - 1) / least_threads;
  static constexpr int patience = 2000;  // polls, of about half a microsecond; right with 0, too

  __device__ std::uint32_t peek(unsigned writer) {
    return *static_cast<const volatile std::uint32_t*>(&boxes_.word(blockIdx.x, writer));
  }

  Mailboxes& boxes_;
};

/// How `rows` rows of `segments` warp-sized pieces each are dealt out.
struct RowLaunch {
  dim3 grid, block;
  std::int64_t rows_per_block;
};
inline RowLaunch launch_for(std::int64_t rows, std::int64_t segments, const Properties& device,
                            std::int64_t most_blocks = 1 << 30) {
  // Little work: small blocks, so that it spreads over all multiprocessors.
  const std::int64_t items = rows * segments, multiprocessors = device.multiprocessors;
  const int threads = items <= 8 * multiprocessors ? 128 : most_threads;
  const std::int64_t warps = threads / device.lanes;
  const std::int64_t resident = smaller(most_threads / threads * multiprocessors, most_blocks);
  const std::int64_t wanted = clamp_index((items + warps - 1) / warps, 1, resident);
  const std::int64_t rows_per_block = rows > wanted ? (rows + wanted - 1) / wanted : 1;
  const std::int64_t blocks = rows > 0 ? (rows + rows_per_block - 1) / rows_per_block : 1;
  return {dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), rows_per_block};
}

/// The same for blocks that mail each other: one where a total might not fit its word.
inline RowLaunch launch_for_mail(std::int64_t rows, std::int64_t segments, std::int64_t width,
                                 const Properties& device) {
  const RowLaunch shape = launch_for(rows, segments, device, Mailboxes::most_blocks);
  if (shape.rows_per_block <= Mailboxes::largest_total / (width > 0 ? width : 1)) return shape;
  return {dim3(1), shape.block, rows};
}

}  // namespace raggedmla::gpu
