// The loading warpgroup: finds the rows that the queries of an item select and brings them to shared memory, 64 at a
// time. With every tile goes which query selects which row: the only thing the score warpgroup knows about lists.
//
// It has 32 registers a thread and its time between two tiles is time that the matrix units may lack, so everything is
// kept in 32 bits, each lane knows the range of one query, and warps do not wait for each other.
#pragma once

#include "attention/sm90/shared_tile.cuh"
#include "gpu/dependent_launch.cuh"
#include "gpu/fp8.cuh"
#include "gpu/shared_memory.cuh"

namespace raggedmla::gpu::sm90 {

/// `with_fp8`: some source of the call has fp8 pages.
template <bool with_fp8>
class Loader {
 public:
  __device__ Loader(const QueryTileCall& call, SharedMemory& shared) : call_(call), shared_(shared) {}

  __device__ void run() {
    int item = items_begin(call_);
    load_queries(item);
    QueryRange range = range_of_lane(item);
    wait_for_kernel_in_front();  // the merge of lists; all else was there before it began
    while (true) {
      load_item(item, range);
      const int next = next_item(item);
      range = range_of_lane(next);  // while all stages are busy
      if (next >= call_.last_item) break;
      load_queries(next);
      item = next;
    }
    begin_entry();
    announce({TileKind::end, 0}, 0);
  }

 private:
  // Warp w gathers rows 16w to 16w + 15; its lane i looks up the i-th of them. What needs one thread only, warp 0 does.
  static constexpr int rows_per_warp = tile_rows / 4;
  // The loading group is the block's first, so these need no `% group_threads`.
  __device__ static int warp() { return static_cast<int>(threadIdx.x / unsigned{warp_lanes}); }
  __device__ static int lane() { return static_cast<int>(threadIdx.x % unsigned{warp_lanes}); }
  __device__ static bool looks_up() { return lane() < rows_per_warp; }
  __device__ static int looked_up_row() { return rows_per_warp * warp() + lane(); }

  __device__ void load_item(int item, const QueryRange& range) {
    for (int s = 0; s < call_.problem.segment_count; ++s) {
      if (call_.problem.segments[s].list.kind == ListKind::range) {
        load_ranges(s, range);
        continue;
      }
      const int merged = merged_length(item, s);
      if (merged >= 0) {
        load_union(item, s, merged);
      } else {
        load_lists(item, s);
      }
    }
  }

  // ---- q -----------------------------------------------------------------------------------------------------------

  /// q of the item as a tile: row m is head m % H of query m / H. Rows of queries that do not exist come as zeros.
  __device__ void load_queries(int item) {
    begin_entry();
    const int rows = call_.queries_per_item * static_cast<int>(call_.problem.heads);
    announce({TileKind::queries, query_rows}, rows * width * 2);
    if (warp() == 0 && lane() < width / block_columns) {
      copy_box(stage_address() + lane() * block_bytes, call_.q_map, lane() * block_columns, 0,
               item * call_.queries_per_item, shared_.tile_full[at_.index]);
    }
    at_.advance();
  }

  // ---- ranges ------------------------------------------------------------------------------------------------------

  __device__ static bool is_flat(const RowList& list) { return !list.table.entries && list.ring_rows == 0; }

  /// Whether the rows of the request are flat rows although a block table names them.
  __device__ static bool is_in_order(const RowList& list, std::int64_t request) {
    return list.table.in_order != nullptr && list.ring_rows == 0 && list.table.in_order[request] != 0;
  }

  /// Lane 8s + g: the rows of query g of the item in segment s, logical rows of its request or rows of a flat source.
  /// Those of the next item are sent for, to be in the L1 cache when they are asked for.
  __device__ QueryRange range_of_lane(int item) const {
    const int segment = lane() / max_queries, g = lane() % max_queries;
    QueryRange none{0, 0, -1};
    if (item >= call_.last_item || segment >= call_.problem.segment_count) return none;
    const auto& [store, list] = call_.problem.segments[segment];
    if (list.kind != ListKind::range || g >= queries_of(call_, item)) return none;
    const std::int64_t t = std::int64_t{item} * call_.queries_per_item + g;
    const int next = next_item(item);
    if (next < call_.last_item && g < queries_of(call_, next)) {
      const std::int64_t step = t + std::int64_t{next - item} * call_.queries_per_item;
      prefetch(list.first, step);
      prefetch(list.count, step);
    }
    const RowSpan span = list.span(t, store.rows);
    if (span.request < 0 || span.length <= 0) return none;
    std::int64_t base = 0;
    int request = flat_rows;
    if (is_flat(list)) {
      base = list.row_base(span.request);
    } else if (is_in_order(list, span.request)) {
      base = span.request * list.table.columns * list.table.rows_per_page;
    } else {
      request = static_cast<int>(span.request);
    }
    std::int64_t begin = span.begin + base, end = begin + span.length;
    if (begin < 0) begin = 0;
    if (request == flat_rows && end > store.rows) end = store.rows;
    return {begin, end, request};
  }

  __device__ static void prefetch(const IntArray& array, std::int64_t i) {
    prefetch_to_l1(static_cast<const std::uint8_t*>(array.data) + i * array.stride0 * (array.wide ? 8 : 4));
  }

  /// Ranges of neighbouring queries overlap: the tiles walk their hull and jump over gaps, for queries of one request
  /// at a time (of any request where rows are flat). Positions count from `base`; no range is longer than 2^30.
  __device__ void load_ranges(int segment, const QueryRange& of_lane) {
    const int source = segment * max_queries + lane() % max_queries;
    const std::int64_t begin = shuffle(of_lane.begin, source);
    const int length = static_cast<int>(shuffle(of_lane.end, source) - begin);
    const int request = shuffle(of_lane.request, source);
    LaneMask left = lanes_where(lane() < max_queries && length > 0);
    while (left != 0) {
      const int leader = __ffs(static_cast<int>(left)) - 1;
      const std::int64_t base = shuffle(begin, leader);
      const std::int64_t distance = begin - base;
      const int leading_request = shuffle(request, leader);
      const bool together =
          (left >> lane() & 1) != 0 && request == leading_request && distance > -(1 << 29) && distance < (1 << 29);
      left &= ~lanes_where(together);
      const int first = together ? static_cast<int>(distance) : 0, last = together ? first + length : 0;
      walk(segment, base, leading_request, first, last);
    }
  }

  /// Each of the first lanes knows a query's rows [first, last) from `base` on, empty for queries of another walk.
  __device__ void walk(int segment, std::int64_t base, int request, int first, int last) {
    constexpr int nowhere = 0x7FFFFFFF;
    int position = -nowhere;
    while (true) {
      const int start = __reduce_min_sync(all_lanes, last > first && last > position ? max(first, position) : nowhere);
      if (start == nowhere) return;
      const int rows = min(__reduce_max_sync(all_lanes, last > first ? last : -nowhere) - start, tile_rows);
      // Bit j: this lane's query selects row start + j.
      const int low = min(max(first - start, 0), tile_rows), high = min(max(last - start, 0), tile_rows);
      const std::uint64_t covered = low >= high ? 0 : (~std::uint64_t{0} >> (tile_rows - (high - low))) << low;
      if (call_.rows_by_copy_engine[segment] && request == flat_rows) {
        begin_entry();
        copy_tile(segment, static_cast<int>(base) + start, covered, rows);
        at_.advance();
      } else {
        gather_range(segment, request, base + start, covered, rows);
      }
      position = start + rows;
    }
  }

  __device__ void copy_tile(int segment, int row, std::uint64_t covered, int rows) const {
    Selections& selections = shared_.selections[at_.index];
    if (warp() == 0) {
      const bool skips = any_lane(lane() < call_.queries_per_item && ~covered != 0);
      if (lane() < max_queries) *reinterpret_cast<std::uint64_t*>(selections.queries[lane()]) = covered;
      if (lane() < 4) selections.marks[lane()] = skips ? Selections::skips : 0;
    }
    const bool narrow = rows <= narrow_rows;
    announce({TileKind::rows, rows}, (narrow ? narrow_rows : tile_rows) * width * 2);
    Barrier& full = shared_.tile_full[at_.index];
    if (warp() == 0 && lane() < (narrow ? width / block_columns : 1)) {
      copy_box(stage_address() + lane() * block_bytes, call_.maps[segment][narrow], 0, row, lane(), full);
    }
  }

  __device__ void gather_range(int segment, int request, std::int64_t position, std::uint64_t covered, int rows) {
    const auto& [store, list] = call_.problem.segments[segment];
    const int r = looked_up_row();
    int slot = -1;
    if (looks_up() && r < rows) {
      const RowSpan span{position + r, 1, request};
      slot = static_cast<int>(is_flat(list) ? span.begin : list.slot(span, 0, store));
    }
    const auto valid = static_cast<std::uint32_t>(lanes_where(slot >= 0));
    begin_entry();
    Selections& selections = shared_.selections[at_.index];
    mark(selections, static_cast<std::uint32_t>(covered >> (rows_per_warp * warp())) & valid, false);
    gather(store, slot, rows);
  }

  // ---- lists -------------------------------------------------------------------------------------------------------

  __device__ int merged_length(int item, int segment) const {
    const UnionList& merged = call_.unions[segment];
    return merged.lengths == nullptr ? -1 : merged.lengths[item - call_.first_item];
  }

  /// The lists of an item, merged beforehand.
  __device__ void load_union(int item, int segment, int length) {
    const UnionList& merged = call_.unions[segment];
    const uint2* entries = merged.entries + (item - call_.first_item) * merged.capacity;
    const auto entry = [&](int j) { return looks_up() && j < length ? entries[j] : uint2{0xFFFFFFFFu, 0}; };
    uint2 next = entry(looked_up_row());
    for (int begin = 0; begin < length; begin += tile_rows) {
      const uint2 now = next;
      next = entry(begin + tile_rows + looked_up_row());
      load_counted(segment, static_cast<int>(now.x), now.y, min(length - begin, tile_rows));
    }
  }

  /// The lists of an item one after the other: each tile has rows of one query only.
  __device__ void load_lists(int item, int segment) {
    const auto& [store, list] = call_.problem.segments[segment];
    const int queries = queries_of(call_, item);
    for (int g = 0; g < queries; ++g) {
      const RowSpan span = list.span(std::int64_t{item} * call_.queries_per_item + g, store.rows);
      const int length = static_cast<int>(span.length);
      const auto slot = [&](int j) {
        return looks_up() && j < length ? static_cast<int>(list.slot(span, j, store)) : -1;
      };
      int next = slot(looked_up_row());
      for (int begin = 0; begin < length; begin += tile_rows) {
        const int now = next;
        next = slot(begin + tile_rows + looked_up_row());
        load_counted(segment, now, now < 0 ? 0 : 1u << (4 * g), min(length - begin, tile_rows));
      }
    }
  }

  /// Lane i of each warp brings the slot of its row and how often each query selects it, a nibble each.
  __device__ void load_counted(int segment, int slot, std::uint32_t counts, int rows) {
    const LaneMask repeats = lanes_where((counts & 0xEEEEEEEEu) != 0);
    std::uint32_t mine = 0;
#pragma unroll
    for (int g = 0; g < max_queries; ++g) {
      if (g == max_queries / 2 && call_.queries_per_item <= g) break;
      const LaneMask selected = lanes_where((counts >> (4 * g) & 15) != 0);
      if (lane() == g) mine = selected;
    }
    begin_entry();
    Selections& selections = shared_.selections[at_.index];
    mark(selections, mine, repeats != 0);
    if (looks_up()) selections.counts[looked_up_row()] = counts;
    gather(call_.problem.segments[segment].store, slot, rows);
  }

  /// `mine`: which of this warp's rows query lane() selects.
  __device__ void mark(Selections& selections, std::uint32_t mine, bool repeats) const {
    const auto rows = static_cast<std::uint16_t>(mine);
    const bool skips = any_lane(lane() < call_.queries_per_item && rows != 0xFFFF);
    if (lane() < max_queries) selections.queries[lane()][warp()] = rows;
    if (lane() == 0) {
      selections.marks[warp()] =
          static_cast<std::uint8_t>((skips ? Selections::skips : 0) | (repeats ? Selections::repeats : 0));
    }
  }

  // ---- entries of the ring -----------------------------------------------------------------------------------------

  __device__ std::uint32_t stage_address() const { return shared_address(shared_.tiles[at_.index]); }

  /// Waits until the stage is free. Every warp does so for every entry: a barrier only tells the phase before from the
  /// one before that if none is missed.
  __device__ void begin_entry() const {
    random_delay(1);
    shared_.tile_empty[at_.index].wait(at_.parity ^ 1);
  }

  /// The entry is complete when all warps have come here and `bytes` more have come. All warps, also those that have
  /// nothing to load: one that has not looked at the stage's barrier yet must not find it two phases on.
  __device__ void announce(StageInfo info, int bytes) const {
    sync_warp();
    if (lane() == 0) {
      Barrier& full = shared_.tile_full[at_.index];
      if (warp() == 0) {
        shared_.info[at_.index] = info;
        full.arrive_expecting(static_cast<std::uint32_t>(bytes));
      }
      full.arrive(warp_lanes);
    }
    sync_warp();
  }

  /// All warps: lane i of each brings the slot of its row, -1 for zeros. A narrow tile needs the first 16 rows only.
  __device__ void gather(const RowStore& store, int slot, int rows) {
    if (rows > narrow_rows || warp() == 0) {
      if (!with_fp8 || store.kind == StoreKind::bf16) {
        gather_bf16(store, slot);
      } else if (store.kind == StoreKind::fp8_ocp) {
        gather_fp8<Fp8Encoding::ocp>(store, slot);
      } else {
        gather_fp8<Fp8Encoding::fnuz>(store, slot);
      }
    }
    Barrier& full = shared_.tile_full[at_.index];
    if (threadIdx.x == 0) {
      shared_.info[at_.index] = {TileKind::rows, rows};
      full.arrive(1);
    }
    full.arrive_after_async_copies();
    at_.advance();
  }

  /// Four rows at a time: eight lanes of a warp copy one, a block of 64 columns a step, so that a lane needs one
  /// address for all eight steps.
  __device__ void gather_bf16(const RowStore& store, int slot) const {
    constexpr int rows_at_once = 4, lanes_per_row = warp_lanes / rows_at_once;
    const std::uint32_t lane_unit = slot < 0 ? no_row : unit_of_bf16_row(store, static_cast<std::uint32_t>(slot));
    const int chunk = lane() % lanes_per_row;
    const std::uint32_t stage = stage_address() + warp() * (rows_per_warp * 128);
#pragma unroll
    for (int first = 0; first < rows_per_warp; first += rows_at_once) {
      const int row = first + lane() / lanes_per_row;
      const std::uint32_t unit = shuffle(lane_unit, row);
      const bool valid = unit != no_row;
      const std::uint8_t* from = store.data + chunk * 16 + std::uint64_t{valid ? unit : 0} * 16;
      const std::uint32_t to = stage + swizzled(row, chunk);
#pragma unroll
      for (int block = 0; block < width / block_columns; ++block) {
        copy_16_bytes(to + block * block_bytes, from + block * (block_columns * 2), valid);
      }
    }
  }

  /// RowStore::row in 32 bits: rows start on 16-byte boundaries, and takes() admits 2^35 bytes of them.
  __device__ static std::uint32_t unit_of_bf16_row(const RowStore& store, std::uint32_t slot) {
    const auto page_units = static_cast<std::uint32_t>(store.page_stride >> 4);
    if (store.rows_per_page == 1) return slot * page_units;
    const auto rows_per_page = static_cast<std::uint32_t>(store.rows_per_page);
    const std::uint32_t page = slot / rows_per_page;
    return page * page_units + (slot - page * rows_per_page) * static_cast<std::uint32_t>(store.row_stride >> 4);
  }

  /// A warp decodes a row: lanes 0 to 27 take 16 codes each and write two chunks; `batch` rows are in flight. The bf16
  /// channels are copied as they are, four rows a step.
  template <Fp8Encoding encoding>
  __device__ void gather_fp8(const RowStore& store, int slot) const {
    constexpr int batch = 4, code_lanes = 28, code_bytes = 448;
    const std::uint32_t stage = stage_address() + warp() * (rows_per_warp * 128);
    const std::uint32_t row_unit = slot < 0 ? no_row : static_cast<std::uint32_t>((store.row(slot) - store.data) >> 4);
    // Rows start on 16-byte boundaries, scale records on 8-byte ones.
    const std::uint32_t scale_unit = slot < 0 ? 0 : static_cast<std::uint32_t>((store.scales(slot) - store.data) >> 3);
#pragma unroll 1
    for (int i = 0; i < rows_per_warp; i += 4) {
      const int row = i + lane() / 8;
      const std::uint32_t unit = shuffle(row_unit, row);
      const bool valid = unit != no_row;
      const std::uint8_t* from = store.data + (valid ? std::uint64_t{unit} << 4 : 0) + code_bytes + lane() % 8 * 16;
      copy_16_bytes(stage + 7 * block_bytes + swizzled(row, lane() % 8), from, valid);
    }
    const std::uint32_t block = stage + lane() / 4 * block_bytes;
    const int chunk = 2 * (lane() % 4);
#pragma unroll 1
    for (int i = 0; i < rows_per_warp; i += batch) {
      uint4 codes[batch];
      std::uint8_t scale[batch];
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const std::uint32_t unit = shuffle(row_unit, i + b), scales = shuffle(scale_unit, i + b);
        codes[b] = {0, 0, 0, 0};
        scale[b] = 127;
        if (lane() < code_lanes && unit != no_row) {
          codes[b] = *reinterpret_cast<const uint4*>(store.data + (std::uint64_t{unit} << 4) + lane() * 16);
          scale[b] = store.data[(std::uint64_t{scales} << 3) + lane() / 4];
        }
      }
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const std::uint32_t words[4] = {codes[b].x, codes[b].y, codes[b].z, codes[b].w};
        std::uint32_t out[4][2];
        Fp8Decoder<encoding>::decode(words, scale[b], out);
        if (lane() < code_lanes) {
          store_shared(block + swizzled(i + b, chunk), Words<4>{{out[0][0], out[0][1], out[1][0], out[1][1]}});
          store_shared(block + swizzled(i + b, chunk + 1), Words<4>{{out[2][0], out[2][1], out[3][0], out[3][1]}});
        }
      }
    }
    fence_async_proxy();
  }

  static constexpr std::uint32_t no_row = 0xFFFFFFFFu;

  const QueryTileCall& call_;
  SharedMemory& shared_;
  RingPosition<stages> at_;
};

}  // namespace raggedmla::gpu::sm90
