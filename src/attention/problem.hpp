// The attention call as backends see it: checked, flattened, small enough to be a kernel parameter.
#pragma once

#include <cstdint>

#include "base/array_view.hpp"
#include "base/host_device.hpp"
#include "kv_cache/row_store.hpp"

namespace raggedmla {

enum class ListKind : std::uint8_t { ragged, dense, range };

/// The rows of one query in one list: entries [0, length); `begin` is where they start (an offset into `indices` for
/// explicit lists, the first logical row for ranges).
struct RowSpan {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t request = -1;  // ranges only
};

/// A list entry as read: an index, or for ranges a page number or a base, and the logical row.
struct RawEntry {
  std::int64_t value = -1;
  std::int64_t row = -1;
};

/// A checked row selection. `span` and `slot` are the definition of the contract's clamping rules for all backends.
struct RowList {
  ListKind kind = ListKind::dense;
  // ragged and dense
  IntArray indices;           // ragged: [capacity]; dense: [T, width]
  std::int64_t capacity = 0;  // ragged: entries in the buffer; dense: width
  IntArray lengths;           // dense, optional
  IntArray indptr;            // ragged
  // range
  IntArray first;
  IntArray count;
  IntArray query_start;
  std::int64_t requests = 0;
  BlockTable table;  // table.entries absent: flat rows at row_base
  IntArray row_base;
  std::int64_t ring_rows = 0;
  std::int64_t max_queries_per_request = 0;

  /// The request that owns query t (binary search over query_start), -1 if none.
  RAGGEDMLA_HOST_DEVICE std::int64_t request_of(std::int64_t t) const {
    if (t < requests && query_start(t) == t && query_start(t + 1) == t + 1) return t;  // one query each: decode
    std::int64_t low = 0, high = requests;  // the last b with query_start[b] <= t
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (query_start(middle + 1) <= t) low = middle + 1;
      else high = middle;
    }
    return low < requests && query_start(low) <= t && t < query_start(low + 1) ? low : -1;
  }

  /// `rows` = rows of the source. Bounds every loop by what exists, whatever the arrays hold.
  RAGGEDMLA_HOST_DEVICE RowSpan span(std::int64_t t, std::int64_t rows) const {
    if (kind == ListKind::dense) {
      return {t * indices.stride0, lengths ? clamp_index(lengths(t), 0, capacity) : capacity, -1};
    }
    if (kind == ListKind::ragged) {
      const std::int64_t begin = clamp_index(indptr(t), 0, capacity);
      return {begin * indices.stride0, clamp_index(indptr(t + 1), begin, capacity) - begin, -1};
    }
    const std::int64_t request = request_of(t);
    return request < 0 ? RowSpan{} : range_span(first(t), count(t), request, rows);
  }

  /// The same for a range whose two numbers and whose request are at hand.
  RAGGEDMLA_HOST_DEVICE RowSpan range_span(std::int64_t first_row, std::int64_t row_count, std::int64_t request,
                                           std::int64_t rows) const {
    constexpr std::int64_t far = std::int64_t{1} << 62;  // keeps every sum below in range
    std::int64_t begin = clamp_index(first_row, -far, far);
    std::int64_t length = row_count < 0 ? 0 : row_count;
    if (ring_rows > 0) {
      length = length > ring_rows ? ring_rows : length;
    } else {
      // Rows below 0 and beyond the request's reach are skipped anyway; dropping them here bounds the loop.
      const std::int64_t reach = table.entries ? table.columns * table.rows_per_page : rows;
      const std::int64_t base = table.entries ? 0 : row_base(request);
      const std::int64_t last = table.entries ? reach : (base > rows ? 0 : reach - (base < -reach ? -reach : base));
      std::int64_t end = begin > last ? begin : (length > last - begin ? last : begin + length);
      if (begin < 0) begin = 0;
      length = end > begin ? end - begin : 0;
    }
    return {begin, length, request};
  }

  /// Entry j of a span as it stands in memory, before anything is checked, so that a kernel can have it on its way long
  /// before it looks at it.
  RAGGEDMLA_HOST_DEVICE RawEntry raw_entry(const RowSpan& span, std::int64_t j) const {
    if (kind != ListKind::range) {
      return {indices.at_offset(span.begin + j * (kind == ListKind::dense ? indices.stride1 : indices.stride0)), 0};
    }
    std::int64_t row = span.begin + j;
    if (row < 0) return {};
    if (ring_rows > 0) row %= ring_rows;
    if (!table.entries) return {row_base(span.request), row};
    return {table.page(span.request, row), row};
  }

  /// The same for explicit lists, as the word in memory; `begin` is the span's.
  RAGGEDMLA_HOST_DEVICE IntArray::Word word(std::int64_t begin, std::int64_t j) const {
    return indices.word_at(begin + j * (kind == ListKind::dense ? indices.stride1 : indices.stride0));
  }

  /// The slot of a raw entry, -1 if it selects no row.
  RAGGEDMLA_HOST_DEVICE std::int64_t slot(const RawEntry& entry, const RowStore& store) const {
    std::int64_t slot = entry.value;
    if (kind == ListKind::range) {
      if (entry.row < 0) return -1;
      slot = table.entries ? table.slot_in_page(entry.value, entry.row) : wrapping_sum(entry.value, entry.row);
    }
    return store.holds(slot) ? slot : -1;
  }

  /// The slot of entry j of a span, -1 if the entry selects no row.
  RAGGEDMLA_HOST_DEVICE std::int64_t slot(const RowSpan& span, std::int64_t j, const RowStore& store) const {
    return slot(raw_entry(span, j), store);
  }
};

struct SegmentProblem {
  RowStore store;
  RowList list;
};

struct AttentionProblem {
  static constexpr int max_segments = 4;

  const std::uint16_t* q = nullptr;                    // bf16 bits
  std::int64_t q_stride_token = 0, q_stride_head = 0;  // elements
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  SegmentProblem segments[max_segments];
  int segment_count = 0;
  const float* sink = nullptr;
  std::int64_t sink_stride = 0;
  float scale = 0;
  void* out = nullptr;
  bool out_is_f32 = false;
  std::int64_t out_stride_token = 0, out_stride_head = 0;
  float* lse = nullptr;
  std::int64_t lse_stride_token = 0, lse_stride_head = 0;
  float* max_logits = nullptr;
  std::int64_t max_logits_stride_token = 0, max_logits_stride_head = 0;
  // Epilogue: inverse RoPE when cos_sin is set.
  const float* cos_sin = nullptr;  // [positions, 64]
  std::int64_t cos_sin_stride = 0;
  std::int64_t cos_sin_rows = 0;
  IntArray positions;
};

struct MergeProblem {
  const void* partial_out = nullptr;
  bool partial_is_f32 = false;
  std::int64_t partial_stride_part = 0, partial_stride_token = 0, partial_stride_head = 0;
  const float* partial_lse = nullptr;
  std::int64_t partial_lse_stride_part = 0, partial_lse_stride_token = 0, partial_lse_stride_head = 0;
  std::int64_t parts = 0, tokens = 0, heads = 0;
  const float* sink = nullptr;
  std::int64_t sink_stride = 0;
  void* out = nullptr;
  bool out_is_f32 = false;
  std::int64_t out_stride_token = 0, out_stride_head = 0;
  float* lse = nullptr;
  std::int64_t lse_stride_token = 0, lse_stride_head = 0;
};

}  // namespace raggedmla
