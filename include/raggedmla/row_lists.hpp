// Row lists: which cache rows each query reads, in the three forms that attention takes, and the operators that make
// them on the device, each in one launch and without waiting for the device.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "raggedmla/tensor.hpp"

namespace raggedmla {

// ---- the three forms of a selection --------------------------------------------------------------------------------

/// Compressed sparse rows: query t reads `indices[indptr[t] : indptr[t + 1]]`.
/// Entries of `indptr` are clamped to be non-decreasing within the buffer; what lies behind `indptr[T]` is never read.
struct RaggedRows {
  TensorView indices;  ///< `[capacity]` i32 or i64
  TensorView indptr;   ///< `[T + 1]` i32 or i64
};

/// One row of W columns per query, as a top-k kernel leaves it: query t reads `indices[t, 0 : lengths[t]]`.
/// Lengths are clamped to [0, W]; without lengths all W columns count. Columns at or beyond the length are not
/// interpreted.
struct DenseRows {
  TensorView indices;      ///< `[T, W]` i32 or i64, any row stride
  OptionalTensor lengths;  ///< `[T]` i32 or i64, any stride
};

/// No list at all: query t of request b reads the logical rows `first[t], ..., first[t] + count[t] - 1` of its request
/// (the sliding window, and every layer that attends to all compressed rows).
///
/// With `block_table`, logical row r of request b is slot `block_table[b, r / rows_per_page] * rows_per_page +
/// r % rows_per_page`; with `row_base`, it is row `row_base[b] + r`. With `ring_rows` > 0, r is taken modulo it first
/// and counts are clamped to it. A row is skipped when r < 0, when its table column does not exist or when the
/// resulting slot is outside the source.
struct RangeRows {
  TensorView first;            ///< `[T]` i32 or i64
  TensorView count;            ///< `[T]` i32 or i64, clamped to >= 0
  TensorView query_start;      ///< `[B + 1]` i32 or i64: request b owns queries [query_start[b], query_start[b + 1])
  OptionalTensor block_table;  ///< `[B, P]` i32 or i64, strided; exactly one of block_table and row_base
  OptionalTensor row_base;     ///< `[B]` i32 or i64
  std::int64_t ring_rows = 0;  ///< 0 = no ring, at most 2^31
  std::int64_t max_queries_per_request = 0;  ///< host hint for the schedule, 0 = unknown; never changes a result
};

using RowSelection = std::variant<RaggedRows, DenseRows, RangeRows>;

// ---- where queries stand -------------------------------------------------------------------------------------------

/// Queries by request: request b owns queries [query_start[b], query_start[b + 1]), the last of them at position
/// `sequence_lengths[b] - 1`. A query outside every request, or whose position comes out negative or beyond i32, has no
/// rows.
struct RequestQueries {
  TensorView query_start;       ///< `[B + 1]` i32 or i64
  TensorView sequence_lengths;  ///< `[B]` i32 or i64, tokens of the request after this step
};

/// Queries with explicit positions. A position that is negative or beyond i32, or a request outside [0, B) (without a
/// block table: a negative one), means: no rows.
struct PositionedQueries {
  TensorView positions;         ///< `[T]` i32 or i64
  TensorView request_of_query;  ///< `[T]` i32 or i64
};

using QueryLayout = std::variant<RequestQueries, PositionedQueries>;

// ---- the three forms of a result -----------------------------------------------------------------------------------

/// A list with a fixed row length. Columns at or beyond the length are written -1.
struct DenseOutput {
  TensorView indices;      ///< `[T, W]` i32
  OptionalTensor lengths;  ///< `[T]` i32
};

/// A CSR list. `indices` must hold the worst case (the operator says which); what lies behind `indptr[T]` is left as
/// is.
struct RaggedOutput {
  TensorView indices;      ///< `[capacity]` i32
  TensorView indptr;       ///< `[T + 1]` i32, or i64 where the capacity needs it
  OptionalTensor lengths;  ///< `[T]` i32
};

/// A range per query, to be used as `RangeRows::first` and `count`.
struct RangeOutput {
  TensorView first;  ///< `[T]` i32
  TensorView count;  ///< `[T]` i32
};

using ListOutput = std::variant<DenseOutput, RaggedOutput>;
using RangeOrListOutput = std::variant<DenseOutput, RaggedOutput, RangeOutput>;

// ---- operators -----------------------------------------------------------------------------------------------------

/// Packs a dense list: `indptr` = exclusive scan of the lengths clamped to [0, W]; row t's first `length` entries go to
/// `indices[indptr[t] ...]`. With `row_limit >= 0` an entry outside [0, row_limit) becomes -1 (it keeps its place), as
/// does one that does not fit i32.
/// The capacity of `out.indices` is at least T * W; nothing is read back, so it is never trimmed.
/// T = 0 writes `indptr[0] = 0`. Source: vLLM `build_ragged_indices_from_dense`.
struct BuildRagged {
  TensorView indices;      ///< `[T, W]` i32 or i64
  OptionalTensor lengths;  ///< `[T]` i32 or i64; absent: W
  RaggedOutput out;
  std::int64_t row_limit = -1;
};
std::size_t build_ragged_workspace_bytes(const BuildRagged& arguments);
void build_ragged(const BuildRagged& arguments, Workspace workspace = {}, Stream stream = {});

/// Turns a top-k result (request-local entry numbers) into slots through the block table:
/// `e -> block_table[b, e / rows_per_page] * rows_per_page + e % rows_per_page`.
/// An entry < 0, beyond the table, or whose table entry is negative or >= `pages` is dropped; the others keep their
/// order and stand first; the length is their number. Queries with `valid[t] == 0` or a request outside [0, B) get
/// length 0. Source: vLLM `compute_global_topk_indices_and_lens` and its ragged twin.
struct TranslateTopk {
  TensorView topk;              ///< `[T, K]` i32 or i64
  TensorView request_of_query;  ///< `[T]` i32 or i64
  TensorView block_table;       ///< `[B, P]` i32 or i64, strided
  int rows_per_page = 64;
  std::int64_t pages = -1;  ///< pages of the cache, -1 = unknown (attention checks slots anyway)
  OptionalTensor valid;     ///< `[T]` boolean or u8
  OptionalTensor lengths;   ///< `[T]`; columns at or beyond are not interpreted
  ListOutput out;           ///< capacity T * K
};
std::size_t translate_topk_workspace_bytes(const TranslateTopk& arguments);
void translate_topk(const TranslateTopk& arguments, Workspace workspace = {}, Stream stream = {});

/// Sliding-window rows of every query: positions [max(0, pos - window + 1), pos], ascending, as slots through the block
/// table, or as plain positions without one. With `causal = false` (draft blocks) all queries of a request share
/// [max(0, start - window), sequence length), start = position of the request's first query; needs `RequestQueries`.
/// An entry the table does not hold is -1 in place. Width W of a list output bounds the row length (the latest W stay).
/// Source: spec of vLLM's window metadata; DeepSeek-V4 reference `get_window_topk_idxs`.
struct WindowRows {
  QueryLayout queries;
  std::int64_t query_count = 0;  ///< T
  int window = 128;
  bool causal = true;
  OptionalTensor block_table;  ///< `[B, P]` i32 or i64
  int rows_per_page = 64;
  OptionalTensor valid;    ///< `[T]` boolean or u8
  std::int64_t width = 0;  ///< row bound W: ragged (capacity T * W) at least 1; dense 0 or its columns; range 0 = none
  RangeOrListOutput out;
};
std::size_t window_rows_workspace_bytes(const WindowRows& arguments);
void window_rows(const WindowRows& arguments, Workspace workspace = {}, Stream stream = {});

/// All visible compressed rows of every query: entries [0, min((pos + 1) / ratio, W)), as slots through the block table
/// or as plain entry numbers. An entry the table does not hold is -1 in place. Source: ratio-128 layers of DeepSeek-V4.
struct CompressedRows {
  QueryLayout queries;
  std::int64_t query_count = 0;  ///< T
  int ratio = 128;
  OptionalTensor block_table;  ///< `[B, P]` i32 or i64
  int rows_per_page = 2;
  OptionalTensor valid;    ///< `[T]` boolean or u8
  std::int64_t width = 0;  ///< row bound W, as in WindowRows
  RangeOrListOutput out;
};
std::size_t compressed_rows_workspace_bytes(const CompressedRows& arguments);
void compressed_rows(const CompressedRows& arguments, Workspace workspace = {}, Stream stream = {});

/// One list for prefill over a flat workspace `[B, M, 512]` whose request b holds compressed rows at [0, N) and the
/// last `gathered[b]` window tokens from row N on. For a query at position pos of request b: first k = min((pos + 1) /
/// ratio, K) entries `M * b + topk[t, i]` (-1 in place where the entry is outside [0, N)), then s = min(pos + 1,
/// window) entries `M * b + N + (pos - s + 1 + i) - (sequence length - gathered[b])`
/// (-1 where that token is not among the request's window rows [N, M)). Length k + s. Layers without compressed rows
/// pass no topk. Source: vLLM prefill `combine_topk_swa_indices`.
struct Combine {
  OptionalTensor topk;  ///< `[T, K]` i32 or i64
  RequestQueries queries;
  std::int64_t query_count = 0;       ///< T
  TensorView gathered;                ///< `[B]` i32 or i64
  std::int64_t rows_per_request = 0;  ///< M
  std::int64_t compressed_rows = 0;   ///< N
  int ratio = 4;
  int window = 128;
  ListOutput out;  ///< `[T, W]` with W >= K + window, or capacity T * (K + window)
};
std::size_t combine_workspace_bytes(const Combine& arguments);
void combine(const Combine& arguments, Workspace workspace = {}, Stream stream = {});

/// Copies a CSR list into persistent buffers whose addresses a captured graph holds: only what `indptr` covers, not the
/// capacity; a stale tail is never read. If the destination has room for more queries than the source (`[G + 1]`, G >
/// T), the remaining indptr entries repeat the last one, so that the extra rows of a padded graph are empty. A list
/// longer than the destination is cut at its capacity. Source: vLLM `_copy_ragged_to_graph_buffers`.
struct CopyToGraphBuffers {
  RaggedRows source;
  TensorView indices;  ///< `[capacity]` same type as the source's
  TensorView indptr;   ///< `[G + 1]`, G >= T, same type as the source's
};
void copy_to_graph_buffers(const CopyToGraphBuffers& arguments, Stream stream = {});

}  // namespace raggedmla
