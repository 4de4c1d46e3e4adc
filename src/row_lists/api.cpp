// The row-list operators at the door: arguments are checked, flattened into a list and a target, and handed to the
// backend of their device.
#include <string>

#include "base/backend.hpp"
#include "base/checks.hpp"
#include "row_lists/backends.hpp"

namespace raggedmla {

namespace {

// ---- dispatch ------------------------------------------------------------------------------------------------------

template <class List>
struct ListCall {
  List list;
  ListTarget target;
};

template <class List>
std::size_t workspace_bytes(const Checker& check, const ListCall<List>& call) {
  if constexpr (with_gpu) {
    if (check.device().type == gpu_device_type) return gpu::emit_workspace_bytes(call.list, call.target);
  }
  return 0;
}

/// True if the call is the CPU's; throws if it is nobody's.
bool runs_on_cpu(const char* name, const Checker& check, ListBackend backend) {
  const bool cpu = check.device().type == DeviceType::cpu;
  if (!cpu) require_backend(name, check.device());
  check.require(cpu || backend == ListBackend::automatic, "the reference takes CPU tensors only");
  return cpu;
}

template <class List>
void run(const char* name, const Checker& check, const ListCall<List>& call, ListBackend backend,
         const Workspace& workspace, Stream stream) {
  if (runs_on_cpu(name, check, backend)) {
    backend == ListBackend::reference ? reference::emit(call.list, call.target) : cpu::emit(call.list, call.target);
  } else if constexpr (with_gpu) {
    const std::size_t needed = gpu::emit_workspace_bytes(call.list, call.target);
    if (needed > 0) check.workspace(workspace, needed);
    gpu::emit(call.list, call.target, check.device().index, workspace, stream);
  }
}

// ---- parts that operators share ------------------------------------------------------------------------------------

ListTarget dense_output(Checker& check, const DenseOutput& out, std::int64_t queries) {
  ListTarget target;
  target.indices = check.integer_output("out.indices", out.indices, {queries, any_size});
  target.lengths = check.integer_output("out.lengths", out.lengths, {queries});
  target.width = out.indices.shape[1];
  return target;
}

ListTarget ragged_output(Checker& check, const RaggedOutput& out, std::int64_t queries, std::int64_t width) {
  ListTarget target;
  target.indices = check.integer_output("out.indices", out.indices, {any_size});
  target.indptr = check.integer_output("out.indptr", out.indptr, {queries + 1}, {DataType::i32, DataType::i64});
  target.lengths = check.integer_output("out.lengths", out.lengths, {queries});
  target.width = width;
  std::int64_t worst = 0;
  const bool fits = !__builtin_mul_overflow(queries, width, &worst) && out.indices.shape[0] >= worst;
  if (!fits) {
    check.fail("out.indices has " + std::to_string(out.indices.shape[0]) + " entries, expected at least " +
               std::to_string(queries) + " queries * " + std::to_string(width) + " entries");
  }
  check.require(target.indptr.wide || worst <= largest_entry,
                [&] { return "out.indptr is i32, expected i64 for up to " + std::to_string(worst) + " entries"; });
  return target;
}

/// The output of an operator whose rows have at most `width` entries.
ListTarget list_output(Checker& check, const ListOutput& out, std::int64_t queries, std::int64_t width) {
  if (const auto* ragged = std::get_if<RaggedOutput>(&out)) return ragged_output(check, *ragged, queries, width);
  const ListTarget target = dense_output(check, std::get<DenseOutput>(out), queries);
  check.require(target.width >= width, [&] {
    return "out.indices has " + std::to_string(target.width) + " columns, expected at least " + std::to_string(width);
  });
  return target;
}

void at_least(const Checker& check, const char* argument, std::int64_t value, std::int64_t least) {
  check.require(value >= least, [&] {
    return std::string(argument) + " is " + std::to_string(value) + ", expected at least " + std::to_string(least);
  });
}

/// T where no tensor of the queries bounds it; the outputs do, once it can be added to.
std::int64_t checked_query_count(const Checker& check, std::int64_t count) {
  at_least(check, "query_count", count, 0);
  constexpr std::int64_t most = std::int64_t{1} << 40;
  check.require(count <= most, [&] { return "query_count is " + std::to_string(count) + ", expected at most 2^40"; });
  return count;
}

/// An array that entries can be loaded from even if the real one holds nothing; what comes is never used.
IntArray loadable(const IntArray& array, const TensorView& view, const IntArray& stand_in) {
  return view.size() > 0 ? array : IntArray{stand_in.data, 0, 0, stand_in.wide};
}

SlotTable block_table(Checker& check, const TensorView& view, int rows_per_page, std::int64_t pages) {
  SlotTable table;
  at_least(check, "rows_per_page", rows_per_page, 1);
  table.entries = check.integers("block_table", view, {any_size, any_size});
  table.requests = view.shape[0];
  table.set_rows_per_page(static_cast<std::uint32_t>(rows_per_page));
  const std::int64_t representable = (largest_entry + 1) / rows_per_page;  // pages whose slots fit i32
  const std::int64_t columns = view.size() > 0 ? smaller(view.shape[1], representable) : 0;
  table.rows = static_cast<std::uint32_t>(columns * rows_per_page);
  table.pages = static_cast<std::uint32_t>(pages < 0 ? representable : smaller(pages, representable));
  return table;
}

QueryPlaces query_places(Checker& check, const RequestQueries& queries) {
  QueryPlaces places;
  places.query_start = check.integers("queries.query_start", queries.query_start, {any_size});
  places.requests = queries.query_start.shape[0] - 1;
  check.require(places.requests >= 0, "queries.query_start has shape [0], expected [B + 1]");
  places.sequence_lengths = check.integers("queries.sequence_lengths", queries.sequence_lengths, {places.requests});
  return places;
}

/// `requests` bounds the request numbers of PositionedQueries, any_size = unknown.
QueryPlaces query_places(Checker& check, const QueryLayout& queries, std::int64_t query_count, std::int64_t requests) {
  if (const auto* by_request = std::get_if<RequestQueries>(&queries)) {
    const QueryPlaces places = query_places(check, *by_request);
    check.require(requests == any_size || requests == places.requests, [&] {
      return "block_table has " + std::to_string(requests) + " rows, expected " + std::to_string(places.requests) +
             " as queries.query_start says";
    });
    return places;
  }
  const auto& positioned = std::get<PositionedQueries>(queries);
  QueryPlaces places;
  places.positioned = true;
  places.positions = check.integers("queries.positions", positioned.positions, {query_count});
  places.request_of_query = check.integers("queries.request_of_query", positioned.request_of_query, {query_count});
  places.requests = requests == any_size ? largest_entry : requests;
  return places;
}

// ---- window_rows and compressed_rows -------------------------------------------------------------------------------

template <class Range>
struct RangeCall : ListCall<RangeList<Range>> {
  bool as_ranges = false;
  RangeTarget ranges;
};

/// `range` comes with what is the operator's own; the rest is common to both.
template <class Range, class Arguments>
RangeCall<Range> range_call(Checker& check, const Arguments& arguments, Range range) {
  RangeCall<Range> call;
  const std::int64_t queries = checked_query_count(check, arguments.query_count);
  at_least(check, "width", arguments.width, 0);

  call.list.through_table = arguments.block_table.has_value();
  if (arguments.block_table) {
    call.list.table = block_table(check, *arguments.block_table, arguments.rows_per_page, -1);
  }
  range.places =
      query_places(check, arguments.queries, queries, arguments.block_table ? call.list.table.requests : any_size);
  if (arguments.block_table) {
    call.list.table.entries = loadable(call.list.table.entries, *arguments.block_table,
                                       range.places.positioned ? range.places.positions : range.places.query_start);
  }
  range.valid = check.mask("valid", arguments.valid, {queries});

  if (const auto* ranges = std::get_if<RangeOutput>(&arguments.out)) {
    check.require(!arguments.block_table, "block_table is given, expected none: a range holds logical rows");
    call.as_ranges = true;
    call.ranges.first = check.integer_output("out.first", ranges->first, {queries});
    call.ranges.count = check.integer_output("out.count", ranges->count, {queries});
    range.width = arguments.width > 0 ? arguments.width : largest_entry;
  } else if (const auto* dense = std::get_if<DenseOutput>(&arguments.out)) {
    call.target = dense_output(check, *dense, queries);
    range.width = call.target.width;
    check.require(arguments.width == 0 || arguments.width == range.width, [&] {
      return "width is " + std::to_string(arguments.width) + ", expected 0 or the columns of out.indices, " +
             std::to_string(range.width);
    });
  } else {
    at_least(check, "width", arguments.width, 1);
    call.target = ragged_output(check, std::get<RaggedOutput>(arguments.out), queries, arguments.width);
    range.width = arguments.width;
  }
  call.list.range = range;
  call.list.queries = queries;
  call.list.width = range.width;
  return call;
}

template <class Range>
void run(const char* name, const Checker& check, const RangeCall<Range>& call, ListBackend backend,
         const Workspace& workspace, Stream stream) {
  const ListCall<RangeList<Range>>& lists = call;
  if (!call.as_ranges) return run(name, check, lists, backend, workspace, stream);
  const std::int64_t queries = call.list.queries;
  if (runs_on_cpu(name, check, backend)) {
    backend == ListBackend::reference ? reference::emit_ranges(call.list.range, queries, call.ranges)
                                      : cpu::emit_ranges(call.list.range, queries, call.ranges);
  } else if constexpr (with_gpu) {
    gpu::emit_ranges(call.list.range, queries, call.ranges, check.device().index, stream);
  }
}

RangeCall<WindowRange> checked(Checker& check, const WindowRows& arguments) {
  WindowRange range;
  at_least(check, "window", arguments.window, 0);
  range.window = arguments.window;
  range.causal = arguments.causal;
  check.require(range.causal || std::holds_alternative<RequestQueries>(arguments.queries),
                "queries are PositionedQueries, expected RequestQueries with causal = false");
  return range_call(check, arguments, range);
}

RangeCall<CompressedRange> checked(Checker& check, const CompressedRows& arguments) {
  CompressedRange range;
  at_least(check, "ratio", arguments.ratio, 1);
  range.ratio = static_cast<std::uint32_t>(arguments.ratio);
  return range_call(check, arguments, range);
}

// ---- the other operators -------------------------------------------------------------------------------------------

ListCall<DenseList> checked(Checker& check, const BuildRagged& arguments) {
  ListCall<DenseList> call;
  DenseList& list = call.list;
  list.indices = check.integers("indices", arguments.indices, {any_size, any_size});
  list.queries = arguments.indices.shape[0];
  list.width = arguments.indices.shape[1];
  list.lengths = check.integers("lengths", arguments.lengths, {list.queries});
  const bool limited = arguments.row_limit >= 0;
  list.limited_i32 = limited;
  list.lowest = limited ? 0 : -largest_entry - 1;
  list.highest = limited ? smaller(arguments.row_limit - 1, largest_entry) : largest_entry;
  call.target = ragged_output(check, arguments.out, list.queries, list.width);
  return call;
}

ListCall<TranslatedList> checked(Checker& check, const TranslateTopk& arguments) {
  ListCall<TranslatedList> call;
  TranslatedList& list = call.list;
  list.topk = check.integers("topk", arguments.topk, {any_size, any_size});
  list.queries = arguments.topk.shape[0];
  list.width = arguments.topk.shape[1];
  list.request_of_query = check.integers("request_of_query", arguments.request_of_query, {list.queries});
  list.table = block_table(check, arguments.block_table, arguments.rows_per_page, arguments.pages);
  list.table.entries = loadable(list.table.entries, arguments.block_table, list.request_of_query);
  list.valid = check.mask("valid", arguments.valid, {list.queries});
  list.lengths = check.integers("lengths", arguments.lengths, {list.queries});
  call.target = list_output(check, arguments.out, list.queries, list.width);
  return call;
}

ListCall<CombinedList> checked(Checker& check, const Combine& arguments) {
  ListCall<CombinedList> call;
  CombinedList& list = call.list;
  list.queries = checked_query_count(check, arguments.query_count);
  at_least(check, "ratio", arguments.ratio, 1);
  at_least(check, "window", arguments.window, 0);
  at_least(check, "compressed_rows", arguments.compressed_rows, 0);
  at_least(check, "rows_per_request", arguments.rows_per_request, arguments.compressed_rows);
  if (arguments.topk) {
    list.topk = check.integers("topk", *arguments.topk, {list.queries, any_size});
    list.topk_width = arguments.topk->shape[1];
  }
  list.places = query_places(check, arguments.queries);
  list.gathered = check.integers("gathered", arguments.gathered, {list.places.requests});
  list.topk = loadable(list.topk, arguments.topk.value_or(TensorView(nullptr, DataType::i32, {0})), list.gathered);
  list.rows_per_request = arguments.rows_per_request;
  list.compressed_rows = arguments.compressed_rows;
  list.ratio = static_cast<std::uint32_t>(arguments.ratio);
  list.window = arguments.window;
  list.width = list.topk_width + list.window;
  std::int64_t rows = 0;
  check.require(!__builtin_mul_overflow(list.places.requests, list.rows_per_request, &rows) && rows <= largest_entry,
                "rows_per_request times the requests exceeds 2^31 - 1, the largest row of an i32 list");
  call.target = list_output(check, arguments.out, list.queries, list.width);
  return call;
}

GraphCopy checked(Checker& check, const CopyToGraphBuffers& arguments) {
  const RaggedRows& source = arguments.source;
  GraphCopy copy;
  const IntArray entries = check.integers("source.indices", source.indices, {any_size});
  copy.source_indptr = check.integers("source.indptr", source.indptr, {any_size});
  copy.source = entries.data;
  copy.wide = entries.wide;
  copy.source_capacity = source.indices.shape[0];
  copy.source_queries = source.indptr.shape[0] - 1;
  check.require(copy.source_queries >= 0, "source.indptr has shape [0], expected [T + 1]");
  copy.destination = check.integer_output("indices", arguments.indices, {any_size}, {source.indices.dtype}).data;
  copy.destination_indptr = check.integer_output("indptr", arguments.indptr, {any_size}, {source.indptr.dtype});
  copy.destination_capacity = arguments.indices.shape[0];
  copy.destination_queries = arguments.indptr.shape[0] - 1;
  check.require(copy.destination_queries >= copy.source_queries, [&] {
    return "indptr has shape " + shape_text(arguments.indptr) + ", expected at least [" +
           std::to_string(copy.source_queries + 1) + "] as source.indptr";
  });
  check.packed_rows("source.indices", source.indices);
  check.packed_rows("indices", arguments.indices);
  return copy;
}

template <class Arguments>
std::size_t checked_workspace_bytes(const char* name, const Arguments& arguments) {
  Checker check(name);
  const auto call = checked(check, arguments);
  return workspace_bytes(check, call);
}

template <class Arguments>
void checked_run(const char* name, const Arguments& arguments, ListBackend backend, const Workspace& workspace,
                 Stream stream) {
  Checker check(name);
  const auto call = checked(check, arguments);
  run(name, check, call, backend, workspace, stream);
}

}  // namespace

// ---- the operators -------------------------------------------------------------------------------------------------

std::size_t build_ragged_workspace_bytes(const BuildRagged& arguments) {
  return checked_workspace_bytes("build_ragged", arguments);
}
std::size_t translate_topk_workspace_bytes(const TranslateTopk& arguments) {
  return checked_workspace_bytes("translate_topk", arguments);
}
std::size_t window_rows_workspace_bytes(const WindowRows& arguments) {
  return checked_workspace_bytes("window_rows", arguments);
}
std::size_t compressed_rows_workspace_bytes(const CompressedRows& arguments) {
  return checked_workspace_bytes("compressed_rows", arguments);
}
std::size_t combine_workspace_bytes(const Combine& arguments) { return checked_workspace_bytes("combine", arguments); }

void build_ragged(const BuildRagged& arguments, ListBackend backend, const Workspace& workspace, Stream stream) {
  checked_run("build_ragged", arguments, backend, workspace, stream);
}
void translate_topk(const TranslateTopk& arguments, ListBackend backend, const Workspace& workspace, Stream stream) {
  checked_run("translate_topk", arguments, backend, workspace, stream);
}
void window_rows(const WindowRows& arguments, ListBackend backend, const Workspace& workspace, Stream stream) {
  checked_run("window_rows", arguments, backend, workspace, stream);
}
void compressed_rows(const CompressedRows& arguments, ListBackend backend, const Workspace& workspace, Stream stream) {
  checked_run("compressed_rows", arguments, backend, workspace, stream);
}
void combine(const Combine& arguments, ListBackend backend, const Workspace& workspace, Stream stream) {
  checked_run("combine", arguments, backend, workspace, stream);
}
void copy_to_graph_buffers(const CopyToGraphBuffers& arguments, ListBackend backend, Stream stream) {
  constexpr const char* name = "copy_to_graph_buffers";
  Checker check(name);
  const GraphCopy copy = checked(check, arguments);
  if (runs_on_cpu(name, check, backend)) {
    backend == ListBackend::reference ? reference::copy_to_graph_buffers(copy) : cpu::copy_to_graph_buffers(copy);
  } else if constexpr (with_gpu) {
    gpu::copy_to_graph_buffers(copy, check.device().index, stream);
  }
}

void build_ragged(const BuildRagged& arguments, Workspace workspace, Stream stream) {
  build_ragged(arguments, ListBackend::automatic, workspace, stream);
}
void translate_topk(const TranslateTopk& arguments, Workspace workspace, Stream stream) {
  translate_topk(arguments, ListBackend::automatic, workspace, stream);
}
void window_rows(const WindowRows& arguments, Workspace workspace, Stream stream) {
  window_rows(arguments, ListBackend::automatic, workspace, stream);
}
void compressed_rows(const CompressedRows& arguments, Workspace workspace, Stream stream) {
  compressed_rows(arguments, ListBackend::automatic, workspace, stream);
}
void combine(const Combine& arguments, Workspace workspace, Stream stream) {
  combine(arguments, ListBackend::automatic, workspace, stream);
}
void copy_to_graph_buffers(const CopyToGraphBuffers& arguments, Stream stream) {
  copy_to_graph_buffers(arguments, ListBackend::automatic, stream);
}

}  // namespace raggedmla
