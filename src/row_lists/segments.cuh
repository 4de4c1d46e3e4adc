// A segment: the entries of a row that one warp moves at a time, 16 per lane (4 where there are few rows), all loads in
// flight before the first store. They can be loaded before it is known where they go.
#pragma once

#include "gpu/warp.cuh"
#include "row_lists/problem.hpp"

namespace raggedmla::gpu {

/// Segments of a row of `width` entries. At least one: its owner also reports the row's length.
template <class Segment>
RAGGEDMLA_HOST_DEVICE std::int64_t row_segments(std::int64_t width, int lanes) {
  const std::int64_t entries = std::int64_t{Segment::lane_entries} * lanes;
  return width > entries ? (width + entries - 1) / entries : 1;
}

/// Any list: lane l holds entries l, l + lanes, l + 2 lanes, ...
template <class List, int lane_entries_ = 16>
class EntrySegment {
 public:
  static constexpr int lane_entries = lane_entries_, entries = lane_entries * warp_lanes;

  __device__ void load(const List& list, const typename List::Row& row, std::int64_t first) {
    list.usual() ? load_entries(list.as_usual(), row, first) : load_entries(list, row, first);
  }
  /// Writes the first `count` entries.
  __device__ void store(std::int32_t* destination, std::int64_t step, int count) const {
#pragma unroll
    for (int i = 0; i < lane_entries; ++i) {
      const int j = lane_index() + i * warp_lanes;
      if (j < count) destination[j * step] = entries_[i];
    }
  }

 private:
  template <class Usual>
  __device__ void load_entries(const Usual& list, const typename List::Row& row, std::int64_t first) {
    if (first < row.length) {
#pragma unroll
      for (int i = 0; i < lane_entries; ++i) {
        entries_[i] = list.entry(row, smaller(first + lane_index() + i * warp_lanes, row.length - 1));
      }
    }
#pragma unroll
    for (int i = 0; i < lane_entries; ++i) {
      if (first + lane_index() + i * warp_lanes >= row.length) entries_[i] = -1;
    }
  }

  std::int32_t entries_[lane_entries];
};

/// Packed 32-bit words, four to a load: lane l holds words 4 l ... 4 l + 3 of each vector.
///
/// Rows of a ragged list start anywhere, but stores are whole aligned 16-byte words all the same: with `head` words
/// before the first boundary, a lane stores the last 4 - head of its own words and the first `head` of its neighbour's.
template <int vectors = 4>
class WordSegment {
 public:
  static constexpr int lane_entries = 4 * vectors, entries = lane_entries * warp_lanes;

  __device__ void load(const std::int32_t* source, int count) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(source) % sizeof(int4) == 0;
    const auto* fours = reinterpret_cast<const int4*>(source) + lane_index();
    if (aligned && count == entries) {  // the rule in long lists; nothing to decide per word
#pragma unroll
      for (int i = 0; i < vectors; ++i) words_[i] = fours[i * warp_lanes];
      return;
    }
#pragma unroll
    for (int i = 0; i < vectors; ++i) {
      const int w = word(i);
      if (aligned && w + 4 <= count) {
        words_[i] = fours[i * warp_lanes];
      } else {
        words_[i].x = w < count ? source[w] : 0;
        words_[i].y = w + 1 < count ? source[w + 1] : 0;
        words_[i].z = w + 2 < count ? source[w + 2] : 0;
        words_[i].w = w + 3 < count ? source[w + 3] : 0;
      }
    }
  }
  __device__ void load(const DenseList& list, const DenseList::Row& row, std::int64_t first) {
    load(static_cast<const std::int32_t*>(list.indices.data) + row.begin + first,
         static_cast<int>(clamp_index(row.length - first, 0, entries)));
    if (!list.limited_i32) return;
#pragma unroll
    for (int4& four : words_) {
      four.x = list.limited_word(four.x);
      four.y = list.limited_word(four.y);
      four.z = list.limited_word(four.z);
      four.w = list.limited_word(four.w);
    }
  }

  /// Writes the first `count` words to consecutive addresses.
  __device__ void store(std::int32_t* destination, std::int64_t /*step*/, int count) const {
    const int head = static_cast<int>(-(reinterpret_cast<std::uintptr_t>(destination) / sizeof(std::int32_t)) % 4);
    if (head == 0 && count == entries) {
      auto* fours = reinterpret_cast<int4*>(destination) + lane_index();
#pragma unroll
      for (int i = 0; i < vectors; ++i) fours[i * warp_lanes] = words_[i];
      return;
    }
    if (lane_index() == 0) {
      if (head > 0 && count > 0) destination[0] = words_[0].x;
      if (head > 1 && count > 1) destination[1] = words_[0].y;
      if (head > 2 && count > 2) destination[2] = words_[0].z;
    }
#pragma unroll
    for (int i = 0; i < vectors; ++i) {
      const int4 four = shifted(i, head);
      const int w = word(i) + head;
      if (w + 4 <= count) {
        *reinterpret_cast<int4*>(destination + w) = four;
      } else {
        if (w < count) destination[w] = four.x;
        if (w + 1 < count) destination[w + 1] = four.y;
        if (w + 2 < count) destination[w + 2] = four.z;
      }
    }
  }

 private:
  __device__ static int word(int i) { return 4 * (lane_index() + i * warp_lanes); }

  /// Words word(i) + head ... + 3. Behind the segment's last word stands anything; `count` is never beyond it.
  __device__ int4 shifted(int i, int head) const {
    const int4 own = words_[i];
    if (head == 0) return own;  // the same in all lanes
    const int4 give = lane_index() == 0 && i + 1 < vectors ? words_[i + 1] : own;
    const int neighbour = (lane_index() + 1) % warp_lanes;
    const int next_x = shuffle(give.x, neighbour), next_y = shuffle(give.y, neighbour);
    const int next_z = shuffle(give.z, neighbour);
    if (head == 1) return make_int4(own.y, own.z, own.w, next_x);
    if (head == 2) return make_int4(own.z, own.w, next_x, next_y);
    return make_int4(own.w, next_x, next_y, next_z);
  }

  int4 words_[vectors];
};

}  // namespace raggedmla::gpu
