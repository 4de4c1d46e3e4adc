#include "io/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "raggedmla/error.hpp"

namespace raggedmla::io {
namespace {

constexpr std::array<const char*, 5> segment_prefixes = {"", "main_", "extra_", "third_", "fourth_"};

/// Reads the tensors of one segment, all under its prefix.
class SegmentReader {
 public:
  SegmentReader(TensorSet& tensors, std::string prefix) : tensors_(tensors), prefix_(std::move(prefix)) {}

  /// Adds the segment to the call, if the set has it.
  void read(AttentionCall& call) const {
    const std::optional<RowSelection> rows = selection();
    if (!rows) return;
    call.segments.push_back({source(), *rows});
    call.names.push_back({prefix_, find("kv") ? named("kv") : find("pages") ? named("pages") : "kv"});
  }

 private:
  std::string named(const char* name) const { return prefix_ + name; }
  OptionalTensor find(const char* name) const { return tensors_.find(named(name)); }
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(fmt::format("{}: {}", tensors_.name(), message));
  }

  std::optional<RowSelection> selection() const {
    const OptionalTensor indices = find("indices");
    const OptionalTensor first = find("first");
    if (indices && first) {
      fail(fmt::format("holds both '{}' and '{}', expected one of them", named("indices"), named("first")));
    }
    if (indices) {
      if (const OptionalTensor indptr = find("indptr")) return RaggedRows{*indices, *indptr};
      return DenseRows{*indices, find("lengths")};
    }
    if (!first) return std::nullopt;
    RangeRows rows;
    rows.first = *first;
    rows.count = tensors_.get(named("count"));
    rows.query_start = tensors_.get(named("query_start"));
    rows.block_table = find("block_table");
    rows.row_base = find("row_base");
    rows.ring_rows = tensors_.integer(named("ring_rows"), 0);
    rows.max_queries_per_request = tensors_.integer(named("max_queries_per_request"), 0);
    return rows;
  }

  KvSource source() const {
    const OptionalTensor rows = find("kv");
    const OptionalTensor pages = prefix_.empty() ? std::nullopt : find("pages");
    if (rows && pages) fail(fmt::format("holds both '{}' and '{}', expected one", named("kv"), named("pages")));
    if (rows) return DenseKv{*rows};
    if (pages) return PagedKv{*pages, rows_per_page(*pages), encoding()};
    if (const OptionalTensor shared = tensors_.find("kv")) return DenseKv{*shared};
    fail(prefix_.empty() ? "has no tensor 'kv' for the rows of 'indices'"
                         : fmt::format("has no rows for '{}': expected '{}', '{}' or 'kv'",
                                       named(find("indices") ? "indices" : "first"), named("pages"), named("kv")));
  }

  int rows_per_page(const TensorView& pages) const {
    // Pages of bf16 rows tell by their shape; packed pages do not.
    const std::string key = named("rows_per_page");
    if (pages.dtype == DataType::u8 && !tensors_.metadata.contains(key)) {
      fail(fmt::format("has no metadata {}, expected the rows of a page of '{}'", key, named("pages")));
    }
    const std::int64_t value = tensors_.integer(key, pages.rank > 1 ? pages.shape[1] : 0);
    if (value < 1 || value > (1 << 30)) {
      fail(fmt::format("metadata {} is {}, expected the rows of a page of '{}'", key, value, named("pages")));
    }
    return static_cast<int>(value);
  }

  Fp8Encoding encoding() const {
    const std::string text = tensors_.text(named("encoding"), "ocp");
    if (text == "ocp") return Fp8Encoding::ocp;
    if (text == "fnuz") return Fp8Encoding::fnuz;
    fail(fmt::format("metadata {} is '{}', expected ocp or fnuz", named("encoding"), text));
  }

  TensorSet& tensors_;
  std::string prefix_;
};

Epilogue read_epilogue(TensorSet& tensors) {
  const std::string kind = tensors.text("epilogue", "none");
  if (kind == "none") return {};
  if (kind != "inverse_rope") {
    throw Error(fmt::format("{}: metadata epilogue is '{}', expected none or inverse_rope", tensors.name(), kind));
  }
  Epilogue epilogue;
  epilogue.kind = Epilogue::Kind::inverse_rope;
  epilogue.cos_sin = tensors.get("cos_sin");
  epilogue.positions = tensors.get("positions");
  return epilogue;
}

/// Elements [begin, begin + count) of the first dimension.
TensorView slice(TensorView view, std::int64_t begin, std::int64_t count) {
  view.data = static_cast<std::byte*>(view.data) +
              begin * view.stride[0] * static_cast<std::int64_t>(element_bytes(view.dtype));
  view.shape[0] = count;
  return view;
}

OptionalTensor slice(const OptionalTensor& view, std::int64_t begin, std::int64_t count) {
  return view ? OptionalTensor(slice(*view, begin, count)) : std::nullopt;
}

std::int64_t integer_at(const TensorView& view, std::int64_t index) {
  const std::int64_t offset = index * view.stride[0];
  return view.dtype == DataType::i64 ? static_cast<const std::int64_t*>(view.data)[offset]
                                     : static_cast<const std::int32_t*>(view.data)[offset];
}

RowSelection slice_rows(const RowSelection& rows, std::int64_t query, const std::string& name, TensorSet& storage) {
  if (const auto* ragged = std::get_if<RaggedRows>(&rows)) {
    return RaggedRows{ragged->indices, slice(ragged->indptr, query, 2)};
  }
  if (const auto* dense = std::get_if<DenseRows>(&rows)) {
    return DenseRows{slice(dense->indices, query, 1), slice(dense->lengths, query, 1)};
  }
  RangeRows range = std::get<RangeRows>(rows);
  range.first = slice(range.first, query, 1);
  range.count = slice(range.count, query, 1);
  // Seen from its query alone, the owning request holds [0, 1) and every other request is empty.
  const TensorView starts = range.query_start;
  range.query_start = storage.add(name, DataType::i64, {starts.shape[0]});
  for (std::int64_t b = 0; b < starts.shape[0]; ++b) {
    const std::int64_t start = integer_at(starts, b);
    static_cast<std::int64_t*>(range.query_start.data)[b] = start <= query ? 0 : 1;
  }
  return range;
}

}  // namespace

AttentionCall bind_attention(TensorSet& tensors) {
  const std::string op = tensors.text("op", "");
  if (op != "prefill" && op != "decode") {
    throw Error(fmt::format("{}: metadata op is '{}', expected prefill or decode", tensors.name(), op));
  }
  AttentionCall call;
  call.arguments.q = tensors.get("q");
  for (const char* prefix : segment_prefixes) {
    SegmentReader(tensors, prefix).read(call);
  }
  if (call.segments.empty()) {
    throw Error(fmt::format("{}: selects no rows, expected 'indices', 'main_indices' or 'main_first'", tensors.name()));
  }
  call.arguments.segments = call.segments;
  call.arguments.sink = tensors.find("sink");
  call.arguments.scale = static_cast<float>(tensors.number("scale", call.arguments.scale));
  call.arguments.epilogue = read_epilogue(tensors);
  return call;
}

std::string name_tensors(const AttentionCall& call, std::string message) {
  const auto replace = [&](const std::string& argument, const std::string& tensor) {
    for (std::size_t at = message.find(argument); at != std::string::npos; at = message.find(argument)) {
      message.replace(at, argument.size(), tensor);
    }
  };
  for (std::size_t i = 0; i < call.names.size(); ++i) {
    const std::string segment = fmt::format("segments[{}].", i);
    replace(segment + "kv.pages", call.names[i].source);
    replace(segment + "kv.rows", call.names[i].source);
    replace(segment + "rows.", call.names[i].prefix);
  }
  replace("epilogue.", "");
  return message;
}

AttentionCall slice_query(const AttentionCall& call, std::int64_t query, TensorSet& storage) {
  AttentionCall part;
  part.arguments = call.arguments;
  part.arguments.q = slice(call.arguments.q, query, 1);
  for (std::size_t i = 0; i < call.segments.size(); ++i) {
    const std::string name = fmt::format("query_start of segment {} for query {}", i, query);
    part.segments.push_back({call.segments[i].kv, slice_rows(call.segments[i].rows, query, name, storage)});
  }
  part.arguments.segments = part.segments;
  if (part.arguments.epilogue.kind != Epilogue::Kind::none) {
    part.arguments.epilogue.positions = slice(part.arguments.epilogue.positions, query, 1);
  }
  part.arguments.out = slice(call.arguments.out, query, 1);
  part.arguments.lse = slice(call.arguments.lse, query, 1);
  part.arguments.max_logits = slice(call.arguments.max_logits, query, 1);
  return part;
}

}  // namespace raggedmla::io
