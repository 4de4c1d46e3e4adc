// Walks a query's lists and collects the rows that they select into tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/cpu/tile_kernel.hpp"
#include "attention/problem.hpp"

namespace raggedmla::cpu {

class RowWalk {
 public:
  /// Part `split` of `splits` of all entries of all segments.
  RowWalk(const AttentionProblem& problem, std::int64_t t, int split, int splits) : problem_(problem) {
    std::int64_t entries = 0;
    for (int s = 0; s < problem.segment_count; ++s) {
      spans_[s] = problem.segments[s].list.span(t, problem.segments[s].store.rows);
      entries += spans_[s].length;
    }
    const std::int64_t share = entries / splits, rest = entries % splits;
    std::int64_t skipped = split * share + std::min<std::int64_t>(split, rest);
    left_ = share + (split < rest ? 1 : 0);
    while (segment_ < problem.segment_count && skipped >= spans_[segment_].length) {
      skipped -= spans_[segment_++].length;
    }
    entry_ = skipped;
  }

  /// The next up to 64 valid rows; an empty tile at the end.
  void fill(Tile& tile) {
    tile.count = 0;
    while (left_ > 0 && tile.count < tile_rows) {
      const RowSpan& span = spans_[segment_];
      const std::int64_t end = std::min(span.length, entry_ + left_), begin = entry_;
      take(tile, problem_.segments[segment_], span, end);
      left_ -= entry_ - begin;
      if (entry_ == span.length) {
        ++segment_;
        entry_ = 0;
      }
    }
  }

 private:
  void take(Tile& tile, const SegmentProblem& segment, const RowSpan& span, std::int64_t end) {
    const RowStore store = segment.store;
    int count = tile.count;
    for (; entry_ < end && count < tile_rows; ++entry_) {
      const std::int64_t slot = segment.list.slot(span, entry_, store);
      if (slot < 0) continue;
      tile.rows[count] = store.row(slot);
      if (store.kind != StoreKind::bf16) tile.scales[count] = store.scales(slot);
      tile.kinds[count] = store.kind;
      ++count;
    }
    tile.count = count;
  }

  const AttentionProblem& problem_;
  RowSpan spans_[AttentionProblem::max_segments];
  int segment_ = 0;
  std::int64_t entry_ = 0;
  std::int64_t left_ = 0;  // entries of this part
};

}  // namespace raggedmla::cpu
