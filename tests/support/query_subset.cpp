#include "support/query_subset.hpp"

#include <cstring>

namespace raggedmla::test {

namespace {

std::int64_t integer(const TensorView& view, std::int64_t i) {
  const std::int64_t at = i * view.stride[0];
  return view.dtype == DataType::i64 ? static_cast<const std::int64_t*>(view.data)[at]
                                     : static_cast<const std::int32_t*>(view.data)[at];
}

/// The last request that starts at or before query t, if t is one of its queries; -1 otherwise.
std::int64_t request_of(const TensorView& query_start, std::int64_t t) {
  std::int64_t b = query_start.shape[0] - 2;
  while (b >= 0 && integer(query_start, b) > t) --b;
  return b >= 0 && t < integer(query_start, b + 1) ? b : -1;
}

}  // namespace

const Tensor& QuerySubset::gather(const TensorView& view, const std::vector<std::int64_t>& which) {
  std::vector<std::int64_t> shape(view.shape.begin(), view.shape.begin() + view.rank);
  shape[0] = static_cast<std::int64_t>(which.size());
  Tensor& result = tensors_.emplace_back(view.dtype, shape);
  const std::size_t bytes = element_bytes(view.dtype);
  auto* to = static_cast<char*>(result.view().data);
  for (const std::int64_t first : which) {
    const std::int64_t inner = result.size() / shape[0];
    for (std::int64_t n = 0; n < inner; ++n, to += bytes) {
      std::int64_t at = first * view.stride[0], rest = n;
      for (int i = view.rank - 1; i > 0; rest /= view.shape[i--]) at += rest % view.shape[i] * view.stride[i];
      std::memcpy(to, static_cast<const char*>(view.data) + at * static_cast<std::int64_t>(bytes), bytes);
    }
  }
  return result;
}

RowSelection QuerySubset::gather(const RowSelection& rows, const std::vector<std::int64_t>& queries) {
  if (const auto* list = std::get_if<DenseRows>(&rows)) {
    DenseRows result{gather(list->indices, queries), std::nullopt};
    if (list->lengths) result.lengths = gather(*list->lengths, queries);
    return result;
  }
  const auto count = static_cast<std::int64_t>(queries.size());
  if (const auto* list = std::get_if<RaggedRows>(&rows)) {
    Tensor& indptr = tensors_.emplace_back(list->indptr.dtype, std::vector<std::int64_t>{count + 1});
    std::vector<std::int64_t> entries;
    indptr.set({0}, 0);
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t t = queries[static_cast<std::size_t>(n)];
      for (std::int64_t j = integer(list->indptr, t); j < integer(list->indptr, t + 1); ++j) entries.push_back(j);
      indptr.set({n + 1}, static_cast<double>(entries.size()));
    }
    return RaggedRows{gather(list->indices, entries), indptr};
  }
  // Every query is a request of its own.
  RangeRows range = std::get<RangeRows>(rows);
  std::vector<std::int64_t> requests;
  for (const std::int64_t t : queries) requests.push_back(request_of(range.query_start, t));
  Tensor& starts = tensors_.emplace_back(DataType::i32, std::vector<std::int64_t>{count + 1});
  for (std::int64_t n = 0; n <= count; ++n) starts.set({n}, static_cast<double>(n));
  range.query_start = starts;
  range.first = gather(range.first, queries);
  range.count = gather(range.count, queries);
  for (std::int64_t n = 0; n < count; ++n) {
    if (requests[static_cast<std::size_t>(n)] >= 0) continue;
    tensors_.back().set({n}, 0);  // nobody's query selects nothing
    requests[static_cast<std::size_t>(n)] = 0;
  }
  if (range.block_table) range.block_table = gather(*range.block_table, requests);
  if (range.row_base) range.row_base = gather(*range.row_base, requests);
  return range;
}

QuerySubset::QuerySubset(const Attention& whole, const std::vector<std::int64_t>& queries) : call(whole) {
  call.q = gather(whole.q, queries);
  for (const Segment& segment : whole.segments) segments.push_back({segment.kv, gather(segment.rows, queries)});
  call.segments = segments;
  if (whole.epilogue.kind == Epilogue::Kind::inverse_rope) {
    call.epilogue.positions = gather(whole.epilogue.positions, queries);
  }
}

}  // namespace raggedmla::test
