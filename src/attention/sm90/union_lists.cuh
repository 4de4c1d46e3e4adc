// Merges the lists of the queries of one work item: every row that one of them selects once, in the order of slots,
// with how often each query selects it. Deterministic whatever the order of threads.
//
// One block per item. Every query has a bitmap of the source's rows; together they are the union:
//
//   list entries | their bits | bits counted, 32 words a warp | positions of the bits, in order | rows and counts
//
// Counts are 0 or 1, read off the bitmaps. A bit that was set before is a duplicate (rare): its thread remembers it and
// adds it where its row stands in the finished list. Lists that this form cannot hold (a row more than 15 times in one
// list, a duplicate behind entry 4,096 (sparse: 8,192), a union too long) are left to be walked one by one.
//
// Large sources, `sparse`: bitmaps of all rows would not fit, so a pass before marks the words that hold any selected
// row, and bitmaps have these only, numbered in order; if they still do not fit, a range of them after the other.
#pragma once

#include "attention/sm90/query_tiles.hpp"
#include "gpu/dependent_launch.cuh"
#include "gpu/shared_memory.cuh"
#include "gpu/warp.cuh"

namespace raggedmla::gpu::sm90 {

inline constexpr int union_rows = 1 << 20;     // of a source at most: the numbers of its words fit 16 bits
inline constexpr int union_entries = 8 << 10;  // of a union at most
/// Of a source whose bitmaps have all rows: up to here that is faster (measured).
inline constexpr int dense_union_rows = 64 << 10;

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

/// Whether the entries of a list are neighbouring 32-bit words, as nearly always.
inline bool is_packed(const RowList& list) {
  return !list.indices.wide && (list.kind == ListKind::dense ? list.indices.stride1 : list.indices.stride0) == 1;
}
/// Which kernel merges: the one for large sources also takes lists of any form.
inline bool merges_sparsely(const UnionCall& call) {
  return call.store.rows > dense_union_rows || !is_packed(call.list);
}

/// A warp takes 32 words of the bitmaps at a time.
inline constexpr int group_words = 32, group_rows = 32 * group_words;

/// What stands in the shared memory of a block: u32 bitmaps [queries, stride], u16 positions [warps, group_rows] and,
/// if sparse, u16 numbers [words], u32 marks [marks], u16 ranks [marks].
struct UnionLayout {
  int queries, warps, words, marks;
  __host__ __device__ constexpr UnionLayout(int queries, int threads, std::int64_t rows, bool sparse)
      : queries(queries),
        warps(threads / warp_lanes),
        words(static_cast<int>((rows + group_rows - 1) / group_rows) * group_words),
        marks(sparse ? words / 32 : 0) {
    constexpr int most_words = 2048;  // more would leave too few blocks a multiprocessor
    if (sparse && words > most_words) words = most_words;
  }
  /// Words of a query's bitmap; behind the rows one for each lane, for entries that select nothing.
  __host__ __device__ constexpr int stride() const { return words + warp_lanes; }
  __host__ __device__ constexpr int positions_at() const { return queries * stride() * 4; }
  __host__ __device__ constexpr int numbers_at() const { return positions_at() + warps * group_rows * 2; }
  __host__ __device__ constexpr int marks_at() const { return numbers_at() + (marks > 0 ? words * 2 : 0); }
  __host__ __device__ constexpr int ranks_at() const { return marks_at() + marks * 4; }
  __host__ __device__ constexpr int bytes() const { return ranks_at() + marks * 2; }
};

/// The entries of one thread: every `step`-th of a list.
template <bool packed, int step>
class ThreadEntries {
 public:
  __device__ ThreadEntries() = default;
  /// Of query t; `first` is the thread's number among those that share the list.
  __device__ ThreadEntries(const RowList& list, std::int64_t t, int first) {
    const IntArray& indices = list.indices;
    const bool dense = list.kind == ListKind::dense;
    std::int64_t begin;
    int length;
    if (dense) {
      begin = t * indices.stride0;
      length = static_cast<int>(list.lengths ? clamp_index(list.lengths(t), 0, list.capacity) : list.capacity);
    } else {
      const std::int64_t start = clamp_index(list.indptr(t), 0, list.capacity);
      begin = packed ? start : start * indices.stride0;
      length = static_cast<int>(clamp_index(list.indptr(t + 1), start, list.capacity) - start);
    }
    wide_ = !packed && indices.wide;
    stride_ = packed ? 1 : (dense ? indices.stride1 : indices.stride0) << wide_;
    at_ = static_cast<const std::int32_t*>(indices.data) + (begin << wide_) + first * stride_;
    count_ = (length - first + step - 1) / step;
  }

  __device__ int count() const { return count_; }
  /// The slot of entry i, untrusted.
  __device__ std::uint32_t slot(int i) const {
    const std::int32_t* at = at_ + (packed ? i * step : i * (step * stride_));
    return wide_ && at[1] != 0 ? 0xFFFFFFFFu : static_cast<std::uint32_t>(at[0]);
  }
  /// Entries [begin, begin + n): all loads are under way before the first is looked at. What stands behind the last
  /// entry is no slot, and no two of them have the same bit.
  template <int n>
  __device__ void load(int begin, std::uint32_t (&slots)[n]) const {
#pragma unroll
    for (int i = 0; i < n; ++i)
      slots[i] = begin + i < count_ ? slot(begin + i) : 0xFFFFFFE0u + static_cast<unsigned>(i);
  }

 private:
  const std::int32_t* at_ = nullptr;
  std::int64_t stride_ = 1;  // in words of 32 bits
  int count_ = 0;
  bool wide_ = false;
};

/// Sum over the block's threads; adds those of the warps before to `before`.
template <int warps>
__device__ int block_sum(int of_thread, int (&warp_sums)[warps], int& before) {
  const int sum = warp_sum(of_thread);
  if (lane_index() == 0) warp_sums[warp_index()] = sum;
  __syncthreads();
  int total = 0;
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    if (w < warp_index()) before += warp_sums[w];
    total += warp_sums[w];
  }
  return total;
}

/// The words that hold any selected row, a bit each, and how many come before each 32 of them.
struct SelectedWords {
  std::uint32_t* marks;
  std::uint16_t* ranks;

  /// Marks the words of all entries and returns how many there are.
  template <int warps, class Entries>
  __device__ int mark(const Entries& mine, std::uint32_t rows, int mark_words, int (&warp_sums)[warps]) const {
    constexpr int threads = warps * warp_lanes, batch = 6;
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < mark_words; i += threads) marks[i] = 0;
    __syncthreads();
#pragma unroll 1
    for (int begin = 0; begin < mine.count(); begin += batch) {
      std::uint32_t slots[batch];
      mine.load(begin, slots);
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (slots[i] < rows) atomicOr(&marks[slots[i] / group_rows], 1u << (slots[i] / 32 % 32));
      }
    }
    __syncthreads();
    const int run = (mark_words + threads - 1) / threads;
    const int first = min(thread * run, mark_words), last = min(first + run, mark_words);
    int count = 0;
    for (int i = first; i < last; ++i) count += __popc(marks[i]);
    int rank = warp_inclusive_sum(count) - count;
    const int total = block_sum(count, warp_sums, rank);
    for (int i = first; i < last; ++i) {
      ranks[i] = static_cast<std::uint16_t>(rank);
      rank += __popc(marks[i]);
    }
    return total;
  }
  /// Which of the selected words a marked word is.
  __device__ int rank(std::uint32_t word) const {
    return ranks[word / 32] + __popc(marks[word / 32] & ((1u << (word % 32)) - 1));
  }
};

/// Threads that share the list of a query, and warps of a multiprocessor. One warp a query takes 64 registers a thread,
/// for many entries under way; large sources have longer chains of loads and want more warps instead.
constexpr int union_step(bool sparse) { return sparse ? 64 : 32; }
constexpr int union_warps(bool sparse) { return sparse ? 48 : 32; }

/// `queries`: those of an item, rounded up to a power of two.
template <int queries, bool sparse>
__global__ void __launch_bounds__(queries* union_step(sparse),
                                  union_warps(sparse) / (queries * union_step(sparse) / warp_lanes))
    union_lists(const __grid_constant__ UnionCall call) {
  constexpr int step = union_step(sparse), threads = queries * step, warps = threads / warp_lanes;
  constexpr int batch = sparse ? 6 : 12;
  extern __shared__ uint4 union_shared[];
  __shared__ int warp_sums[warps];
  let_kernel_behind_start();
  const auto rows = static_cast<std::uint32_t>(call.store.rows);
  const UnionLayout layout(queries, threads, rows, sparse);
  const int thread = static_cast<int>(threadIdx.x), query = thread / step, stride = layout.stride();
  auto* const shared = reinterpret_cast<unsigned char*>(union_shared);
  auto* const bitmaps = reinterpret_cast<std::uint32_t*>(shared);  // [queries, stride]
  auto* const positions = reinterpret_cast<std::uint16_t*>(shared + layout.positions_at()) + warp_index() * group_rows;
  auto* const numbers = reinterpret_cast<std::uint16_t*>(shared + layout.numbers_at());  // of words in the source
  const SelectedWords selected{reinterpret_cast<std::uint32_t*>(shared + layout.marks_at()),
                               reinterpret_cast<std::uint16_t*>(shared + layout.ranks_at())};

  ThreadEntries<!sparse, step> mine;
  const std::int64_t t = (std::int64_t{call.first_item} + blockIdx.x) * call.queries_per_item + query;
  if (query < call.queries_per_item && t < call.tokens) mine = {call.list, t, thread % step};
  std::uint32_t slots[batch];
  if (!sparse) mine.load(0, slots);
  const int words = sparse ? selected.mark(mine, rows, layout.marks, warp_sums) : layout.words;
  const auto entries_of_item = [&] { return call.entries + blockIdx.x * call.capacity; };

  std::uint64_t duplicates[2] = {};  // bit i: the thread's entry i is one
  bool fits = true;
  int length = 0;
#pragma unroll 1
  for (int first_word = 0; first_word < words; first_word += layout.words) {
    if (sparse) __syncthreads();
#pragma unroll 1
    for (int i = thread; i < queries * stride / 4; i += threads) union_shared[i] = uint4{0, 0, 0, 0};
    __syncthreads();

    const SharedAddress bitmap = shared_address(bitmaps + query * stride);
    const auto behind = static_cast<std::uint32_t>(layout.words + lane_index());
#pragma unroll 1
    for (int begin = 0; begin < mine.count(); begin += batch) {
      if (sparse || begin > 0) mine.load(begin, slots);
      std::uint32_t seen[batch], any_seen = 0;
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        std::uint32_t word = min(slots[i], behind * 32) / 32;
        if (sparse) {
          word = behind;
          if (slots[i] < rows) {
            const int rank = selected.rank(slots[i] / 32) - first_word;
            if (rank >= 0 && rank < layout.words) {
              word = static_cast<std::uint32_t>(rank);
              numbers[rank] = static_cast<std::uint16_t>(slots[i] / 32);  // the same from all threads
            }
          }
        }
        seen[i] = set_shared_bits(bitmap + word * 4, 1u << (slots[i] % 32));
        if (sparse && word == behind) seen[i] = 0;
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) any_seen |= seen[i] & 1u << (slots[i] % 32);
      if (any_seen != 0) {
#pragma unroll
        for (int i = 0; i < batch; ++i) {
          if ((seen[i] >> (slots[i] % 32) & 1) == 0 || slots[i] >= rows) continue;
          const int entry = begin + i;
          const std::uint64_t bit = std::uint64_t{1} << (entry % 64);
          if (entry < 64) {
            duplicates[0] |= bit;
          } else if (entry < 128) {
            duplicates[1] |= bit;
          } else {
            fits = false;
          }
        }
      }
    }
    __syncthreads();

    // Each warp takes a contiguous run of groups.
    const int groups = (min(words - first_word, layout.words) + group_words - 1) / group_words;
    const int run = (groups + warps - 1) / warps;
    const int first = min(warp_index() * run, groups), last = min(first + run, groups);
    const auto load_words = [&](int group, std::uint32_t(&bits)[queries]) {
      const int word = group * group_words + lane_index();
      std::uint32_t any = 0;
#pragma unroll
      for (int g = 0; g < queries; ++g) {
        bits[g] = bitmaps[g * stride + word];
        any |= bits[g];
      }
      if (!sparse) {  // without the bits behind the last row
        const int valid = static_cast<int>(rows) - word * 32;
        if (valid < 32) any &= valid > 0 ? (1u << valid) - 1 : 0;
      }
      return any;
    };
    int count = 0;
#pragma unroll 1
    for (int group = first; group < last; ++group) {
      std::uint32_t bits[queries];
      count += __popc(load_words(group, bits));
    }
    int at = length;
    length += block_sum(count, warp_sums, at);
    if (length > call.capacity || length > union_entries) {
      fits = false;
      break;
    }

#pragma unroll 1
    for (int group = first; group < last; ++group) {
      std::uint32_t bits[queries];
      std::uint32_t left = load_words(group, bits);
      const int inclusive = warp_inclusive_sum(__popc(left));
      const int of_group = shuffle(inclusive, warp_lanes - 1);
      std::uint16_t* position = positions + inclusive;
      while (left != 0) {
        const int bit = 31 - __clz(static_cast<int>(left));
        left ^= 1u << bit;
        *--position = static_cast<std::uint16_t>(lane_index() * 32 + bit);
      }
      // Rotated by its nibble, so that one more rotation brings any bit of a query there.
#pragma unroll
      for (int g = 0; g < queries; ++g) bits[g] = __funnelshift_l(bits[g], bits[g], 4 * g);
      sync_warp();
      const auto number = static_cast<std::uint32_t>(sparse ? numbers[group * group_words + lane_index()] : 0);
      uint2* entries = entries_of_item() + (at + lane_index());
#pragma unroll 1
      for (int i = lane_index(); i - lane_index() < of_group; i += warp_lanes, entries += warp_lanes) {
        const std::uint32_t bit = i < of_group ? positions[i] : 0;
        const int source = static_cast<int>(bit / 32);
        std::uint32_t counts = 0;
#pragma unroll
        for (int g = 0; g < queries; ++g) {
          const std::uint32_t word = shuffle(bits[g], source);
          counts |= __funnelshift_r(word, word, bit) & 1u << (4 * g);
        }
        const std::uint32_t row =
            sparse ? shuffle(number, source) * 32 + bit % 32 : static_cast<std::uint32_t>(group * group_rows) + bit;
        if (i < of_group) *entries = {row, counts};
      }
      at += of_group;
      sync_warp();
    }
    if (!sparse) break;
  }

  if (__syncthreads_or(!fits || (duplicates[0] | duplicates[1]) != 0)) {
    uint2* const entries = entries_of_item();
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      for (std::uint64_t left = duplicates[part]; left != 0 && fits; left &= left - 1) {
        const std::uint32_t slot = mine.slot(64 * part + __ffsll(static_cast<long long>(left)) - 1);
        int low = 0, high = length;  // entries[low].x <= slot, and slot < entries[high].x where there is one
        while (high - low > 1) {
          const int middle = (low + high) / 2;
          (entries[middle].x <= slot ? low : high) = middle;
        }
        const std::uint32_t before = atomicAdd(&entries[low].y, 1u << (4 * query));
        fits = (before >> (4 * query) & 15) != 15;
      }
    }
    if (__syncthreads_or(!fits)) length = -1;
  }
  if (thread == 0) call.lengths[blockIdx.x] = length;
}

}  // namespace raggedmla::gpu::sm90
