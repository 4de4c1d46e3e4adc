// The loading warps of the single query kernel take turns at the tiles. A lane looks one list entry up and has the copy
// engine bring its row, 1 KiB in one instruction; where there is no row it brings zeros.
#pragma once

#include "attention/sm90/single_query_shared.cuh"

namespace raggedmla::gpu::sm90::single_query {

class Loader {
 public:
  __device__ Loader(const Call& call, SharedMemory& shared) : call_(call), problem_(call.problem), shared_(shared) {}

  __device__ void run() {
    const int tokens = static_cast<int>(problem_.tokens);
    Span span = span_of_lane(first_query());
    for (int t = first_query(); t < tokens; t = next_query(t)) {
      const Span spans = span;
      // Entries of the first tile and the next query's spans are under way while q waits for its stage.
      IntArray::Word first = fetch(0, span_of(spans, 0), tiles_until_mine(1) * tile_rows);
      span = span_of_lane(next_query(t));
      load_queries(t);
      for (int s = 0; s < problem_.segment_count; ++s) {
        const Span whole = span_of(spans, s);
        if (s > 0) first = fetch(s, whole, tiles_until_mine(0) * tile_rows);
        load_list(s, whole, first);
      }
    }
    if (is_mine()) {
      wait_until_free();
      announce({TileKind::end, 0}, 0);
    }
  }

 private:
  __device__ static int lane() { return lane_index(); }

  // ---- lists -------------------------------------------------------------------------------------------------------

  /// RowSpan in four registers: no list is longer than 2^30.
  struct Span {
    std::int64_t begin = 0;
    int length = 0, request = -1;
  };

  /// Lane s: what query t has in segment s.
  __device__ Span span_of_lane(int t) const {
    if (t >= problem_.tokens || lane() >= problem_.segment_count) return {};
    const SegmentProblem& segment = problem_.segments[lane()];
    const RowSpan span = segment.list.span(t, segment.store.rows);
    return {span.begin, static_cast<int>(span.length), static_cast<int>(span.request)};
  }
  __device__ static Span span_of(const Span& of_lane, int segment) {
    return {shuffle(of_lane.begin, segment), shuffle(of_lane.length, segment), shuffle(of_lane.request, segment)};
  }

  /// This lane's entry of the tile that begins at entry `begin`, on its way; of ranges the slot itself.
  __device__ IntArray::Word fetch(int segment, const Span& span, int begin) const {
    const auto& [store, list] = problem_.segments[segment];
    const int j = begin + lane();
    if (j >= span.length) return {-1, -1};
    if (list.kind != ListKind::range) return list.word(span.begin, j);
    const std::int64_t slot = list.slot({span.begin, span.length, span.request}, j, store);
    return {static_cast<std::int32_t>(slot), static_cast<std::int32_t>(slot >> 32)};
  }
  /// The slot that an entry selects, -1 if none.
  __device__ int slot_of(int segment, IntArray::Word entry) const {
    const auto& [store, list] = problem_.segments[segment];
    const bool resolved = list.kind == ListKind::range;
    const std::int64_t slot = IntArray::value(entry, resolved || list.indices.wide);
    return store.holds(slot) ? static_cast<int>(slot) : -1;
  }

  __device__ void load_list(int segment, const Span& span, IntArray::Word entry) {
    const int rows_per_page = problem_.segments[segment].store.rows_per_page;
    for (int begin = 0; begin < span.length; begin += tile_rows, pass()) {
      if (!is_mine()) continue;
      const int slot = slot_of(segment, entry);
      const std::uint32_t valid = lanes_where(slot >= 0);
      entry = fetch(segment, span, begin + group_warps * tile_rows);
      // Where nothing is selected: a page that does not exist.
      const int page = slot < 0 ? -1 : rows_per_page == 1 ? slot : slot / rows_per_page;
      const int row = slot < 0 ? 0 : slot - page * rows_per_page;
      wait_until_free();
      announce({TileKind::rows, valid}, tile_rows * width * 2);
      copy_box(place_of_lane(), call_.rows[segment], row, page, shared_.tile_full(at_.index));
      sync_warp();
    }
  }

  /// q as a tile of its own, a row a head; there are no heads behind the last.
  __device__ void load_queries(int t) {
    if (is_mine()) {
      wait_until_free();
      announce({TileKind::queries, 0}, max_heads * width * 2);
      if (lane() < max_heads) copy_box(place_of_lane(), call_.q, lane(), t, shared_.tile_full(at_.index));
      sync_warp();
    }
    pass();
  }

  // ---- entries of the ring -----------------------------------------------------------------------------------------

  __device__ bool is_mine() const { return tiles_until_mine(0) == 0; }
  __device__ int tiles_until_mine(int from) const { return (warp_index() - entry_ - from) & (group_warps - 1); }
  __device__ void pass() {
    ++entry_;
    at_.advance();
  }

  __device__ SharedAddress place_of_lane() const { return shared_.tile(at_.index) + lane() * row_pitch; }

  /// Waits until this warp's stage is free. A warp waits for its own entries only. Its entry before, four back, waited
  /// for the one ten back; so the phase before the one that it waits for, twelve back, is over.
  __device__ void wait_until_free() const {
    random_delay(1);
    shared_.tile_empty(at_.index).wait(at_.parity ^ 1);
  }
  /// The entry is complete when `bytes` more have come.
  __device__ void announce(StageInfo info, int bytes) const {
    sync_warp();
    if (lane() == 0) {
      store_shared(shared_.info(at_.index), info);
      shared_.tile_full(at_.index).arrive_expecting(static_cast<std::uint32_t>(bytes));
    }
    sync_warp();
  }

  const Call& call_;
  const AttentionProblem& problem_;
  const SharedMap shared_;
  int entry_ = 0;  // of the ring, counted from the start
  RingPosition<stages> at_;
};

}  // namespace raggedmla::gpu::sm90::single_query
