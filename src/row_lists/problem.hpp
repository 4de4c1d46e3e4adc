// The row-list operators as backends see them: checked, flattened, small enough to be kernel parameters.
//
// Every operator but one is a *list*: a struct that says, for query t, how long its row is and what its entries are.
//
//     list.row(t)         -> Row { length, whatever the entries need }
//     list.entry(row, j)  -> entry j of that row, 0 <= j < row.length, -1 = a hole
//     List::drops_holes   -> holes are left out (and the row gets shorter) instead of written as -1
//
// These structs are the definition that all backends share; a backend adds one loop that emits any of them into a
// ListTarget. Values that come from the device (positions, lengths, tables) may be anything: they are brought into
// range here, so that no sum overflows and every entry fits the i32 output.
//
// `entry` has no branches: it brings an index into range, loads, and then decides whether the entry counts, so that a
// GPU has the loads of many entries in flight. What it loads from must therefore exist even when empty (api.cpp sees to
// it). `usual()` says that a list's types are those that engines have, and `as_usual()` tells the compiler.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/array_view.hpp"
#include "base/host_device.hpp"

namespace raggedmla {

inline constexpr std::int64_t largest_entry = 0x7FFFFFFF;  // outputs are i32

/// Keeps sums of a few untrusted numbers within 64 bits.
RAGGEDMLA_HOST_DEVICE inline std::int64_t bounded(std::int64_t value) {
  constexpr std::int64_t far = std::int64_t{1} << 60;
  return clamp_index(value, -far, far);
}

RAGGEDMLA_HOST_DEVICE inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// A block table as lists read it: cut down to slots that fit i32, its division by the page size made a multiplication.
/// `Entries` is IntArray, or PackedInts once `usual()` has been asked.
template <class Entries>
struct SlotTableOf {
  Entries entries;  // [requests, columns]
  std::int64_t requests = 0;
  std::uint32_t rows = 0;   // logical rows per request that the columns reach, at most 2^31
  std::uint32_t pages = 0;  // page numbers are in [0, pages), at most 2^31
  std::uint32_t rows_per_page = 1, magic = 0, shift = 0;

  /// magic = ceil(2^shift / rows_per_page) with shift = 31 + ceil(log2(rows_per_page)): exact for rows below 2^31.
  void set_rows_per_page(std::uint32_t value) {
    rows_per_page = value;
    for (shift = 31; (std::uint64_t{1} << (shift - 31)) < value;) ++shift;
    magic = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + value - 1) / value);
  }

  /// Where a logical row stands: in the page that a column of the table names.
  struct Place {
    std::uint32_t logical, column;
    bool inside;
  };
  template <class Integer>
  RAGGEDMLA_HOST_DEVICE Place place(Integer row) const {
    const bool inside = unsigned_of(row) < rows;
    const std::uint32_t logical = inside ? static_cast<std::uint32_t>(row) : 0;
    return {logical, static_cast<std::uint32_t>((std::uint64_t{logical} * magic) >> shift), inside};
  }
  /// The table's entry there. `begin`: offset of the request's entries.
  RAGGEDMLA_HOST_DEVICE auto page(std::int64_t begin, const Place& place) const {
    return entries.row(begin).gather(place.column * entries.stride1);
  }
  /// The slot, -1 where the table holds nothing: page * rows_per_page + logical - column * rows_per_page.
  template <class Integer>
  RAGGEDMLA_HOST_DEVICE std::int32_t slot(const Place& place, Integer page) const {
    const bool held = place.inside && unsigned_of(page) < pages;
    const std::uint32_t slot = (static_cast<std::uint32_t>(page) - place.column) * rows_per_page + place.logical;
    return held ? static_cast<std::int32_t>(slot) : -1;
  }
  template <class Integer>
  RAGGEDMLA_HOST_DEVICE std::int32_t slot(std::int64_t begin, Integer row) const {
    const Place at = place(row);
    return slot(at, page(begin, at));
  }

  RAGGEDMLA_HOST_DEVICE bool usual() const { return !entries.wide && entries.stride1 == 1; }
  RAGGEDMLA_HOST_DEVICE SlotTableOf<PackedInts> as_usual() const {
    return {{static_cast<const std::int32_t*>(entries.data), entries.stride0},
            requests,
            rows,
            pages,
            rows_per_page,
            magic,
            shift};
  }

 private:
  template <class Integer>
  RAGGEDMLA_HOST_DEVICE static auto unsigned_of(Integer value) {
    return static_cast<std::make_unsigned_t<Integer>>(value);
  }
};
using SlotTable = SlotTableOf<IntArray>;

// ---- where queries stand -------------------------------------------------------------------------------------------

/// A query's place in its request. request < 0: the query has no rows.
struct QueryPlace {
  std::int64_t request;
  std::int64_t position;
  std::int64_t start;  // position of the request's first query in this step
  std::int64_t sequence_length;
};

/// QueryLayout, flattened: either query_start + sequence_lengths, or positions + request_of_query.
struct QueryPlaces {
  IntArray query_start, sequence_lengths;
  IntArray positions, request_of_query;
  std::int64_t requests = 0;  // request numbers outside [0, requests) have no rows
  bool positioned = false;

  RAGGEDMLA_HOST_DEVICE QueryPlace operator()(std::int64_t t) const {
    QueryPlace place = positioned ? by_position(t) : by_request(t);
    if (place.position < 0 || place.position >= largest_entry) place.request = -1;
    return place;
  }

 private:
  RAGGEDMLA_HOST_DEVICE QueryPlace by_position(std::int64_t t) const {
    const std::int64_t position = bounded(positions(t));
    const std::int64_t request = request_of_query(t);
    return {request >= 0 && request < requests ? request : -1, position, position, position + 1};
  }

  RAGGEDMLA_HOST_DEVICE QueryPlace by_request(std::int64_t t) const {
    std::int64_t low = 0, high = requests;  // the first b whose queries end behind t
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (query_start(middle + 1) <= t) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low >= requests) return {-1, 0, 0, 0};
    const std::int64_t first = bounded(query_start(low)), end = bounded(query_start(low + 1));
    if (t < first || t >= end) return {-1, 0, 0, 0};
    const std::int64_t length = bounded(sequence_lengths(low));
    const std::int64_t start = length - (end - first);
    return {low, start + (t - first), start, length};
  }
};

// ---- ranges --------------------------------------------------------------------------------------------------------

/// Logical rows [first, first + count) of a request.
struct RowRange {
  std::int64_t request;
  std::int64_t first;
  std::int64_t count;
};

/// Bounds a range to its last `width` rows (sliding window: the latest stay).
RAGGEDMLA_HOST_DEVICE inline RowRange latest_rows(RowRange range, std::int64_t width) {
  const std::int64_t dropped = range.count > width ? range.count - width : 0;
  return {range.request, range.first + dropped, range.count - dropped};
}

struct WindowRange {
  QueryPlaces places;
  ByteMask valid;
  std::int64_t window = 0;
  std::int64_t width = 0;
  bool causal = true;

  RAGGEDMLA_HOST_DEVICE RowRange operator()(std::int64_t t) const {
    const QueryPlace place = places(t);
    if (place.request < 0 || !valid(t)) return {-1, 0, 0};
    const std::int64_t begin = causal ? place.position - window + 1 : place.start - window;
    const std::int64_t end = causal ? place.position + 1 : smaller(place.sequence_length, largest_entry);
    const std::int64_t first = begin > 0 ? begin : 0;
    return latest_rows({place.request, first, end > first ? end - first : 0}, width);
  }
};

struct CompressedRange {
  QueryPlaces places;
  ByteMask valid;
  std::uint32_t ratio = 1;  // in 32 bits: positions are, and a GPU divides them four times as fast
  std::int64_t width = 0;

  RAGGEDMLA_HOST_DEVICE RowRange operator()(std::int64_t t) const {
    const QueryPlace place = places(t);
    if (place.request < 0 || !valid(t)) return {-1, 0, 0};
    return {place.request, 0, smaller(static_cast<std::uint32_t>(place.position + 1) / ratio, width)};
  }
};

// ---- lists ---------------------------------------------------------------------------------------------------------

/// build_ragged: the rows of a dense list.
struct DenseList {
  static constexpr bool drops_holes = false;
  IntArray indices, lengths;
  std::int64_t queries = 0, width = 0;
  std::int64_t lowest = 0, highest = 0;  // entries outside become holes: row_limit, or what fits i32
  bool limited_i32 = false;              // whether that changes entries that are i32 already

  struct Row {
    std::int64_t length;
    std::int64_t begin;  // offset of entry 0 in `indices`
  };
  RAGGEDMLA_HOST_DEVICE Row row(std::int64_t t) const {
    return {lengths ? clamp_index(lengths.gather(t * lengths.stride0), 0, width) : width, t * indices.stride0};
  }
  /// The row as if it had no length: what may be loaded before the length is known.
  RAGGEDMLA_HOST_DEVICE Row whole_row(std::int64_t t) const { return {width, t * indices.stride0}; }
  RAGGEDMLA_HOST_DEVICE std::int32_t limited(std::int64_t value) const {
    return value >= lowest && value <= highest ? static_cast<std::int32_t>(value) : -1;
  }
  /// limited() for i32 entries, in 32 bits.
  RAGGEDMLA_HOST_DEVICE std::int32_t limited_word(std::int32_t value) const {
    const bool kept = value >= static_cast<std::int32_t>(lowest) && value <= static_cast<std::int32_t>(highest);
    return kept ? value : -1;
  }
  RAGGEDMLA_HOST_DEVICE std::int32_t entry(const Row& row, std::int64_t j) const {
    return limited(indices.gather(row.begin + j * indices.stride1));
  }
  /// Rows are packed i32: backends may copy them in wide words.
  RAGGEDMLA_HOST_DEVICE bool packed() const { return !indices.wide && indices.stride1 == 1; }
  RAGGEDMLA_HOST_DEVICE bool usual() const { return !indices.wide; }
  RAGGEDMLA_HOST_DEVICE auto as_usual() const {
    auto list = *this;
    list.indices.wide = false;
    return list;
  }
};

struct TranslatedRow {
  std::int64_t length;
  std::int64_t begin;
  std::int64_t table_begin;
};

/// translate_topk: top-k entries as slots, without those that the block table does not hold.
template <class Entries>
struct TranslatedListOf {
  static constexpr bool drops_holes = true;
  using Row = TranslatedRow;
  Entries topk;
  SlotTableOf<Entries> table;
  IntArray lengths, request_of_query;
  ByteMask valid;
  std::int64_t queries = 0, width = 0;

  RAGGEDMLA_HOST_DEVICE Row row(std::int64_t t) const {
    const std::int64_t length = lengths ? clamp_index(lengths.gather(t * lengths.stride0), 0, width) : width;
    const std::int64_t request = request_of_query(t);
    const bool empty = !valid(t) || request < 0 || request >= table.requests;
    return {empty ? 0 : length, t * topk.stride0, empty ? 0 : request * table.entries.stride0};
  }
  RAGGEDMLA_HOST_DEVICE std::int32_t entry(const Row& row, std::int64_t j) const {
    return table.slot(row.table_begin, topk.gather(row.begin + j * topk.stride1));
  }
  RAGGEDMLA_HOST_DEVICE bool usual() const { return !topk.wide && topk.stride1 == 1 && table.usual(); }
  RAGGEDMLA_HOST_DEVICE TranslatedListOf<PackedInts> as_usual() const {
    return {{static_cast<const std::int32_t*>(topk.data), topk.stride0},
            table.as_usual(),
            lengths,
            request_of_query,
            valid,
            queries,
            width};
  }
};
using TranslatedList = TranslatedListOf<IntArray>;

struct RangeListRow {
  std::int64_t length;
  std::int64_t first;
  std::int64_t table_begin;
};

/// window_rows and compressed_rows: the rows of a range, through the block table if there is one.
template <class Range, class Entries = IntArray>
struct RangeList {
  static constexpr bool drops_holes = false;
  using Row = RangeListRow;
  Range range;
  SlotTableOf<Entries> table;
  bool through_table = false;
  std::int64_t queries = 0, width = 0;

  RAGGEDMLA_HOST_DEVICE Row row(std::int64_t t) const {
    const RowRange rows = range(t);
    return {rows.count, rows.first, rows.request * table.entries.stride0};
  }
  RAGGEDMLA_HOST_DEVICE std::int32_t entry(const Row& row, std::int64_t j) const {
    const std::int64_t logical = row.first + j;
    return through_table ? table.slot(row.table_begin, logical) : static_cast<std::int32_t>(logical);
  }
  RAGGEDMLA_HOST_DEVICE bool usual() const { return through_table && table.usual(); }
  RAGGEDMLA_HOST_DEVICE RangeList<Range, PackedInts> as_usual() const {
    return {range, table.as_usual(), true, queries, width};
  }
};

/// combine: compressed entries, then window rows, of a flat workspace [B, rows_per_request].
struct CombinedList {
  static constexpr bool drops_holes = false;
  IntArray topk, gathered;
  std::int64_t topk_width = 0;
  QueryPlaces places;
  std::int64_t rows_per_request = 0, compressed_rows = 0, window = 0;
  std::uint32_t ratio = 1;
  std::int64_t queries = 0, width = 0;

  struct Row {  // 32 bytes: a GPU block keeps a thousand of them in shared memory
    std::int64_t length;
    std::int64_t topk_begin;
    std::int64_t window_first;  // the first window token, counted from the request's first gathered one
    std::int32_t topk_count;
    std::int32_t request_base;  // workspace row of the request's compressed entry 0
  };
  RAGGEDMLA_HOST_DEVICE Row row(std::int64_t t) const {
    const QueryPlace place = places(t);
    if (place.request < 0) return {0, 0, 0, 0, 0};
    const std::int64_t visible = place.position + 1;
    const std::int64_t topk_count = smaller(static_cast<std::uint32_t>(visible) / ratio, topk_width);
    const std::int64_t window_count = smaller(visible, window);
    const std::int64_t gathered_start = place.sequence_length - bounded(gathered(place.request));
    return {topk_count + window_count, t * topk.stride0, visible - window_count - gathered_start,
            static_cast<std::int32_t>(topk_count), static_cast<std::int32_t>(place.request * rows_per_request)};
  }
  RAGGEDMLA_HOST_DEVICE std::int32_t entry(const Row& row, std::int64_t j) const {
    const bool from_topk = j < row.topk_count;
    const std::int64_t compressed = topk.gather(row.topk_begin + (from_topk ? j : 0) * topk.stride1);
    const std::int64_t local = from_topk ? compressed : row.window_first + (j - row.topk_count);
    const std::int64_t rows = from_topk ? compressed_rows : rows_per_request - compressed_rows;
    const std::int64_t base = row.request_base + (from_topk ? 0 : compressed_rows);
    return local >= 0 && local < rows ? static_cast<std::int32_t>(base + local) : -1;
  }
  RAGGEDMLA_HOST_DEVICE bool usual() const { return !topk.wide; }
  RAGGEDMLA_HOST_DEVICE auto as_usual() const {
    auto list = *this;
    list.topk.wide = false;
    return list;
  }
};

// ---- results -------------------------------------------------------------------------------------------------------

/// Where a list goes: ragged if `indptr` is set, dense otherwise. Dense columns behind a row are written -1.
struct ListTarget {
  MutableIntArray indices;  // dense: [T, width]; ragged: [capacity]
  std::int64_t width = 0;   // dense: columns
  MutableIntArray indptr;   // [T + 1]
  MutableIntArray lengths;  // [T], optional

  RAGGEDMLA_HOST_DEVICE bool ragged() const { return static_cast<bool>(indptr); }
  /// Offset in `indices` of entry 0 of query t, whose entries start at `begin` of a ragged list.
  RAGGEDMLA_HOST_DEVICE std::int64_t offset(std::int64_t t, std::int64_t begin) const {
    return ragged() ? begin * indices.stride0 : t * indices.stride0;
  }
  /// Distance between neighbouring entries.
  RAGGEDMLA_HOST_DEVICE std::int64_t step() const { return ragged() ? indices.stride0 : indices.stride1; }
};

struct RangeTarget {
  MutableIntArray first, count;  // [T]
};

/// copy_to_graph_buffers. Offsets are clamped to what both lists cover, so nothing behind `covered` is ever read.
struct GraphCopy {
  const void* source = nullptr;
  void* destination = nullptr;
  bool wide = false;  // entries are i64
  std::int64_t source_capacity = 0, destination_capacity = 0;
  IntArray source_indptr;              // [source_queries + 1]
  MutableIntArray destination_indptr;  // [destination_queries + 1]
  std::int64_t source_queries = 0, destination_queries = 0;

  /// Entries to copy.
  RAGGEDMLA_HOST_DEVICE std::int64_t covered() const {
    return clamp_index(source_indptr(source_queries), 0, smaller(source_capacity, destination_capacity));
  }
  RAGGEDMLA_HOST_DEVICE std::int64_t offset_of(std::int64_t t, std::int64_t all) const {
    return clamp_index(source_indptr(smaller(t, source_queries)), 0, all);
  }
};

}  // namespace raggedmla
