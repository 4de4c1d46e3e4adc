// Which entries of a query's lists a block walks.
#pragma once

#include "attention/problem.hpp"
#include "attention/schedule.hpp"
#include "gpu/warp.cuh"

namespace raggedmla::gpu {

/// Entries [begin, end) of a segment's span: what one block walks of it.
struct ListPart {
  RowSpan span;
  std::int64_t begin = 0, end = 0;
};
static_assert(sizeof(ListPart) == 40);

/// Cuts the lists of query t, all segments taken together, into at most `splits` parts of whole tiles of `rows` entries
/// and leaves part `split`, an entry a segment, in `parts` (shared memory). Returns the number of parts. One warp,
/// whose lane s knows segment s.
__device__ inline int cut_lists(const AttentionProblem& problem, std::int64_t t, int split, int splits, int rows,
                                ListPart* parts) {
  const int lane = lane_index();
  ListPart part;
  if (lane < problem.segment_count) {
    const SegmentProblem& segment = problem.segments[lane];
    part.span = segment.list.span(t, segment.store.rows);
  }
  std::int64_t before = 0, total = 0;
#pragma unroll
  for (int s = 0; s < AttentionProblem::max_segments; ++s) {
    const std::int64_t length = shuffle(part.span.length, s);
    if (s < lane) before += length;
    total += length;
  }
  const std::int64_t length = part_length(total, splits, rows);
  const std::int64_t first = split * length - before;
  part.begin = clamp_index(first, 0, part.span.length);
  part.end = clamp_index(first + length, 0, part.span.length);
  if (lane < AttentionProblem::max_segments) parts[lane] = part;
  return static_cast<int>((total + length - 1) / length);
}

/// Tiles of `rows` entries that a block walks; a tile never holds entries of two segments.
__device__ inline int tiles_of(const ListPart* parts, int segments, int rows) {
  int tiles = 0;
  for (int s = 0; s < segments; ++s) tiles += static_cast<int>((parts[s].end - parts[s].begin + rows - 1) / rows);
  return tiles;
}

}  // namespace raggedmla::gpu
