// Merges the lists of the queries of one work item: every row that one of them selects once, in the order of slots,
// with how often each query selects it. Deterministic whatever the order of threads.
//
// One block per item. A bitmap of all rows collects what is selected; a row's rank among the set bits is its place in
// the union; a second pass over the lists counts selections at that place, one nibble per query. Lists that this form
// cannot hold (a row 16 times in one list, a union too long) are left to be walked one by one.
#pragma once

#include "attention/sm90/query_tiles.hpp"
#include "gpu/warp.cuh"

namespace raggedmla::gpu::sm90 {

inline constexpr int union_threads = 512;
inline constexpr int union_rows = 1 << 20;     // bits of the bitmap at most: 128 KiB
inline constexpr int union_entries = 8 << 10;  // counters at most: 32 KiB; their numbers fit 16 bits

/// Sizes of what stands in the shared memory of a block: a bitmap, the rank of each of its words, the counters.
struct UnionLayout {
  int words, counters;
  constexpr UnionLayout(std::int64_t rows, std::int64_t capacity)
      : words(static_cast<int>((rows + 127) / 128) * 4),
        counters(static_cast<int>(capacity < union_entries ? capacity : union_entries)) {}
  constexpr int bytes() const { return words * 4 + words * 2 + counters * 4; }
};

/// The parameters of one segment's merge.
struct UnionCall {
  RowStore store;
  RowList list;
  std::int64_t tokens = 0;
  int queries_per_item = 0;
  int first_item = 0;
  std::int32_t* lengths = nullptr;  // [items]
  uint2* entries = nullptr;         // [items, capacity]
  std::int64_t capacity = 0;
};

/// The entries that one thread looks at. The block's warps are shared out among the queries; a query's threads take its
/// list in strides. The first entries stay in registers, which is all of them for lists of usual length.
class ThreadEntries {
 public:
  __device__ ThreadEntries(const UnionCall& call, int item) : call_(call) {
    const int warps_per_query = union_threads / warp_lanes / call.queries_per_item;
    query_ = warp_index() / warps_per_query;
    step_ = warps_per_query * warp_lanes;
    first_ = warp_index() % warps_per_query * warp_lanes + lane_index();
    const std::int64_t t = std::int64_t{item} * call.queries_per_item + query_;
    if (query_ < call.queries_per_item && t < call.tokens) span_ = call.list.span(t, call.store.rows);
    IntArray::Word words[kept];  // all loads under way before the first is looked at
#pragma unroll
    for (int i = 0; i < kept; ++i) words[i] = word(first_ + i * step_);
#pragma unroll
    for (int i = 0; i < kept; ++i) slots_[i] = slot(words[i]);
  }

  /// Calls visit(query, slot) for each entry that selects a row.
  template <class Visit>
  __device__ void for_each(Visit&& visit) const {
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      if (slots_[i] >= 0) visit(query_, static_cast<std::uint32_t>(slots_[i]));
    }
    for (std::int64_t j = first_ + kept * step_; j < span_.length; j += step_) {
      const int other = slot(word(j));
      if (other >= 0) visit(query_, static_cast<std::uint32_t>(other));
    }
  }

 private:
  static constexpr int kept = 12;
  __device__ IntArray::Word word(std::int64_t j) const {
    return j < span_.length ? call_.list.word(span_.begin, j) : IntArray::Word{-1, -1};
  }
  __device__ int slot(IntArray::Word word) const {
    const std::int64_t slot = IntArray::value(word, call_.list.indices.wide);
    return call_.store.holds(slot) ? static_cast<int>(slot) : -1;
  }

  const UnionCall& call_;
  RowSpan span_;
  int query_, step_, first_;
  int slots_[kept];
};

/// Exclusive sum over the block's threads, in order; `total` is the sum of all.
__device__ inline int block_exclusive_sum(int value, int (&warp_sums)[union_threads / 32], int& total) {
  const int inclusive = warp_inclusive_sum(value);
  if (lane_index() == warp_lanes - 1) warp_sums[warp_index()] = inclusive;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int w = 0; w < union_threads / warp_lanes; ++w) {
    before += w < warp_index() ? warp_sums[w] : 0;
    total += warp_sums[w];
  }
  __syncthreads();
  return before + inclusive - value;
}

__global__ void __launch_bounds__(union_threads) union_lists(const __grid_constant__ UnionCall call) {
  extern __shared__ uint4 union_shared[];
  __shared__ int warp_sums[union_threads / 32];
  const UnionLayout layout(call.store.rows, call.capacity);
  auto* bitmap = reinterpret_cast<std::uint32_t*>(union_shared);
  auto* counters = bitmap + layout.words;
  auto* ranks = reinterpret_cast<std::uint16_t*>(counters + layout.counters);
  const int item = call.first_item + static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);

  for (int i = thread; i < layout.words / 4; i += union_threads) union_shared[i] = uint4{0, 0, 0, 0};
  const ThreadEntries mine(call, item);
  __syncthreads();
  mine.for_each([&](int, std::uint32_t slot) { atomicOr(&bitmap[slot / 32], 1u << (slot % 32)); });
  __syncthreads();

  // Each thread ranks a contiguous run of words.
  const int run = (layout.words + union_threads - 1) / union_threads;
  const int begin = min(thread * run, layout.words), end = min(begin + run, layout.words);
  int selected = 0;
  for (int w = begin; w < end; ++w) selected += __popc(bitmap[w]);
  int total;
  int rank_of_word = block_exclusive_sum(selected, warp_sums, total);
  for (int w = begin; w < end; ++w) {
    ranks[w] = static_cast<std::uint16_t>(rank_of_word);
    rank_of_word += __popc(bitmap[w]);
  }
  const bool fits = total <= layout.counters;
  if (fits) {
    for (int i = thread; i < total; i += union_threads) counters[i] = 0;
  }
  __syncthreads();

  const auto rank = [&](std::uint32_t slot) {
    return ranks[slot / 32] + __popc(bitmap[slot / 32] & ((1u << (slot % 32)) - 1));
  };
  bool overflow = false;
  if (fits) {
    mine.for_each([&](int g, std::uint32_t slot) {
      const std::uint32_t old = atomicAdd(&counters[rank(slot)], 1u << (4 * g));
      overflow |= (old >> (4 * g) & 15) == 15;
    });
  }
  const bool walked_one_by_one = __syncthreads_or(overflow || !fits) != 0;
  if (thread == 0) call.lengths[blockIdx.x] = walked_one_by_one ? -1 : total;
  if (walked_one_by_one) return;

  uint2* entries = call.entries + blockIdx.x * call.capacity;
  for (int w = thread; w < layout.words; w += union_threads) {
    int r = ranks[w];
    for (std::uint32_t left = bitmap[w]; left != 0; left &= left - 1, ++r) {
      entries[r] = {static_cast<std::uint32_t>(w) * 32 + __ffs(static_cast<int>(left)) - 1, counters[r]};
    }
  }
}

}  // namespace raggedmla::gpu::sm90
