#include <string>

#include "objects.hpp"
#include "scratch.hpp"

namespace raggedmla::python {

namespace {

/// The form of a list result: what `out` is, or what `form` asks for where out is None.
enum class Form { dense, ragged, range };

Form form_named(nb::handle name) {
  return choice<Form>(name, "form", {{"dense", Form::dense}, {"ragged", Form::ragged}, {"range", Form::range}});
}

// `out` is made of arrays that are only read elsewhere, so whether they may be written shows here.
void require_writable(const PyDenseRows& out) {
  require_writable(out.indices, "out.indices");
  if (out.lengths) require_writable(*out.lengths, "out.lengths");
}
void require_writable(const PyRaggedRows& out) {
  require_writable(out.indices, "out.indices");
  require_writable(out.indptr, "out.indptr");
  if (out.lengths) require_writable(*out.lengths, "out.lengths");
}

RaggedOutput output_of(const PyRaggedRows& rows) { return {rows.indices.view, rows.indptr.view, view(rows.lengths)}; }

std::int64_t product(std::int64_t queries, std::int64_t width) {
  std::int64_t entries = 0;
  if (!__builtin_mul_overflow(queries, width, &entries)) return entries;
  throw nb::value_error("out.indices is too large to be made: its size overflows 63 bits");
}

/// A list result in any form: the caller's `out`, or new arrays beside `like`.
class ListResult {
 public:
  ListResult(nb::handle out, nb::handle form, const Array& like, std::int64_t queries, std::int64_t width) {
    if (!out.is_none()) {
      adopt(out);
      return;
    }
    const std::int64_t capacity = product(queries, width);
    const auto make = [&](std::initializer_list<std::int64_t> shape) { return empty_like(like, shape, DataType::i32); };
    switch (form_ = form_named(form)) {
      case Form::dense: object_ = nb::cast(PyDenseRows{make({queries, width}), make({queries})}); break;
      case Form::ragged:
        object_ = nb::cast(PyRaggedRows{make({capacity}), make({queries + 1}), make({queries})});
        break;
      case Form::range:
        first_ = make({queries});
        count_ = make({queries});
        object_ = nb::make_tuple(first_->owner, count_->owner);
    }
  }

  const nb::object& object() const { return object_; }

  ListOutput list() const {
    if (form_ == Form::dense) return dense();
    if (form_ == Form::ragged) return ragged();
    throw nb::value_error("this operator writes a list: form is 'dense' or 'ragged', out is DenseRows or RaggedRows");
  }
  RangeOrListOutput range_or_list() const {
    if (form_ == Form::dense) return dense();
    if (form_ == Form::ragged) return ragged();
    return RangeOutput{first_->view, count_->view};
  }
  /// Columns of a dense result; nothing else knows its width.
  std::optional<std::int64_t> columns() const {
    if (form_ != Form::dense) return std::nullopt;
    return dense().indices.shape[1];
  }

 private:
  void adopt(nb::handle out) {
    object_ = nb::borrow(out);
    if (nb::isinstance<PyDenseRows>(out)) {
      form_ = Form::dense;
      require_writable(dense_rows());
    } else if (nb::isinstance<PyRaggedRows>(out)) {
      form_ = Form::ragged;
      require_writable(ragged_rows());
    } else if (nb::tuple pair; nb::try_cast(out, pair) && pair.size() == 2) {
      form_ = Form::range;
      first_ = import_output(pair[0], "out[0]");
      count_ = import_output(pair[1], "out[1]");
    } else {
      refuse_type("out", out, "DenseRows, RaggedRows or a pair (first, count)");
    }
  }
  const PyDenseRows& dense_rows() const { return nb::cast<const PyDenseRows&>(object_); }
  const PyRaggedRows& ragged_rows() const { return nb::cast<const PyRaggedRows&>(object_); }
  DenseOutput dense() const { return {dense_rows().indices.view, view(dense_rows().lengths)}; }
  RaggedOutput ragged() const { return output_of(ragged_rows()); }

  Form form_ = Form::dense;
  nb::object object_;
  std::optional<Array> first_, count_;
};

nb::object build_ragged(nb::handle indices_object, nb::handle lengths_object, nb::handle row_limit, nb::handle out,
                        nb::handle workspace, nb::handle stream_object) {
  const Array indices = import_array(indices_object, "indices");
  const std::optional<Array> lengths = import_optional(lengths_object, "lengths");
  nb::object result_object = nb::borrow(out);
  if (out.is_none()) {
    const auto [queries, width, unused, also_unused] = indices.view.shape;
    result_object = nb::cast(PyRaggedRows{empty_like(indices, {product(queries, width)}, DataType::i32),
                                          empty_like(indices, {queries + 1}, DataType::i32), std::nullopt});
  }
  const auto& result = argument<const PyRaggedRows>(result_object, "out", "RaggedRows");
  require_writable(result);
  const BuildRagged arguments{indices.view, view(lengths), output_of(result),
                              integer<std::int64_t>(row_limit, "row_limit")};
  const Stream stream = stream_for(indices, stream_object);
  run(
      "build_ragged", workspace, indices, stream, [&] { return build_ragged_workspace_bytes(arguments); },
      [&](Workspace scratch) { raggedmla::build_ragged(arguments, scratch, stream); });
  return result_object;
}

nb::object translate_topk(nb::handle topk_object, nb::handle request_object, nb::handle table_object,
                          nb::handle rows_per_page, nb::handle pages, nb::handle valid_object,
                          nb::handle lengths_object, nb::handle form, nb::handle out, nb::handle workspace,
                          nb::handle stream_object) {
  const Array topk = import_array(topk_object, "topk");
  const Array request_of_query = import_array(request_object, "request_of_query");
  const Array block_table = import_array(table_object, "block_table");
  const std::optional<Array> valid = import_optional(valid_object, "valid");
  const std::optional<Array> lengths = import_optional(lengths_object, "lengths");
  const ListResult result(out, form, topk, topk.view.shape[0], topk.view.shape[1]);
  const TranslateTopk arguments{topk.view,
                                request_of_query.view,
                                block_table.view,
                                integer<int>(rows_per_page, "rows_per_page"),
                                integer<std::int64_t>(pages, "pages"),
                                view(valid),
                                view(lengths),
                                result.list()};
  const Stream stream = stream_for(topk, stream_object);
  run(
      "translate_topk", workspace, topk, stream, [&] { return translate_topk_workspace_bytes(arguments); },
      [&](Workspace scratch) { raggedmla::translate_topk(arguments, scratch, stream); });
  return result.object();
}

/// A number of queries, or of entries that a row may hold: outputs may be made of it.
std::int64_t size(nb::handle object, const char* name, std::int64_t most = std::int64_t{1} << 40) {
  return integer_in(object, name, 0, most);
}

/// T of a layout: given, or the number of positions.
std::int64_t query_count_of(nb::handle queries, nb::handle given) {
  if (!given.is_none()) return size(given, "query_count");
  if (nb::isinstance<PyPositionedQueries>(queries)) return layout_array(queries).view.shape[0];
  throw nb::value_error("query_count is needed with RequestQueries: the number of queries T");
}

nb::object window_rows(nb::handle queries, nb::handle query_count, nb::handle window_object, nb::handle causal,
                       nb::handle table_object, nb::handle rows_per_page, nb::handle valid_object, nb::handle width,
                       nb::handle form, nb::handle out, nb::handle workspace, nb::handle stream_object) {
  const QueryLayout layout = query_layout(queries);
  const Array& like = layout_array(queries);
  const std::optional<Array> block_table = import_optional(table_object, "block_table");
  const std::optional<Array> valid = import_optional(valid_object, "valid");
  const std::int64_t count = query_count_of(queries, query_count);
  const int window = static_cast<int>(size(window_object, "window", std::numeric_limits<int>::max()));
  const std::int64_t bound = width.is_none() ? window : size(width, "width");
  const ListResult result(out, form, like, count, bound);
  const WindowRows arguments{layout,
                             count,
                             window,
                             flag(causal, "causal"),
                             view(block_table),
                             integer<int>(rows_per_page, "rows_per_page"),
                             view(valid),
                             result.columns().value_or(bound),
                             result.range_or_list()};
  const Stream stream = stream_for(like, stream_object);
  run(
      "window_rows", workspace, like, stream, [&] { return window_rows_workspace_bytes(arguments); },
      [&](Workspace scratch) { raggedmla::window_rows(arguments, scratch, stream); });
  return result.object();
}

nb::object compressed_rows(nb::handle queries, nb::handle query_count, nb::handle ratio, nb::handle table_object,
                           nb::handle rows_per_page, nb::handle valid_object, nb::handle width_object, nb::handle form,
                           nb::handle out, nb::handle workspace, nb::handle stream_object) {
  const QueryLayout layout = query_layout(queries);
  const Array& like = layout_array(queries);
  const std::optional<Array> block_table = import_optional(table_object, "block_table");
  const std::optional<Array> valid = import_optional(valid_object, "valid");
  const std::int64_t count = query_count_of(queries, query_count);
  const std::int64_t width = size(width_object, "width");
  const ListResult result(out, form, like, count, width);
  const CompressedRows arguments{layout,
                                 count,
                                 integer<int>(ratio, "ratio"),
                                 view(block_table),
                                 integer<int>(rows_per_page, "rows_per_page"),
                                 view(valid),
                                 result.columns().value_or(width),
                                 result.range_or_list()};
  const Stream stream = stream_for(like, stream_object);
  run(
      "compressed_rows", workspace, like, stream, [&] { return compressed_rows_workspace_bytes(arguments); },
      [&](Workspace scratch) { raggedmla::compressed_rows(arguments, scratch, stream); });
  return result.object();
}

nb::object combine(nb::handle topk_object, nb::handle queries, nb::handle gathered_object,
                   nb::handle query_count_object, nb::handle rows_per_request, nb::handle compressed, nb::handle ratio,
                   nb::handle window_object, nb::handle form, nb::handle out, nb::handle workspace,
                   nb::handle stream_object) {
  const std::optional<Array> topk = import_optional(topk_object, "topk");
  const Array gathered = import_array(gathered_object, "gathered");
  const auto& requests = argument<const PyRequestQueries>(queries, "queries", "RequestQueries");
  const std::int64_t query_count = size(query_count_object, "query_count");
  const int window = static_cast<int>(size(window_object, "window", std::numeric_limits<int>::max()));
  const std::int64_t width = (topk ? topk->view.shape[1] : 0) + window;
  const ListResult result(out, form, gathered, query_count, width);
  const Combine arguments{view(topk),
                          requests.view(),
                          query_count,
                          gathered.view,
                          integer<std::int64_t>(rows_per_request, "rows_per_request"),
                          integer<std::int64_t>(compressed, "compressed_rows"),
                          integer<int>(ratio, "ratio"),
                          window,
                          result.list()};
  const Stream stream = stream_for(gathered, stream_object);
  run(
      "combine", workspace, gathered, stream, [&] { return combine_workspace_bytes(arguments); },
      [&](Workspace scratch) { raggedmla::combine(arguments, scratch, stream); });
  return result.object();
}

void copy_to_graph_buffers(nb::handle source_object, nb::handle indices_object, nb::handle indptr_object,
                           nb::handle stream_object) {
  const auto& source = argument<const PyRaggedRows>(source_object, "source", "RaggedRows");
  const Array indices = import_output(indices_object, "indices");
  const Array indptr = import_output(indptr_object, "indptr");
  const CopyToGraphBuffers arguments{source.view(), indices.view, indptr.view};
  const Stream stream = stream_for(indices, stream_object);
  run([&] { raggedmla::copy_to_graph_buffers(arguments, stream); });
}

constexpr const char* result_note =
    "\n\nform  'dense' -> DenseRows, 'ragged' -> RaggedRows (capacity T * W), 'range' -> the pair (first, count), "
    "where\n"
    "      the operator has it; ignored where `out` is given, which is then written and returned";

}  // namespace

void bind_row_lists(nb::module_& module) {
  module.def("build_ragged", &build_ragged, named("indices"), named("lengths") = nb::none(), nb::kw_only(),
             named("row_limit") = -1, named("out") = nb::none(), named("workspace") = nb::none(),
             named("stream") = nb::none(),
             nb::sig("def build_ragged(indices: Array, lengths: Array"
                     " | None = None, *, row_limit: int = -1, out: RaggedRows | None = None, "
                     "workspace: Workspace | None = None, stream: int | object | None = None) -> RaggedRows"),
             R"(Packs a dense list into compressed sparse rows.

indices    i32 or i64 [T, W]
lengths    i32 or i64 [T], clamped to [0, W]; None: W
row_limit  >= 0: an entry outside [0, row_limit) becomes -1 and keeps its place
out        RaggedRows with room for T * W entries; made if None

Returns RaggedRows: indptr is the exclusive scan of the lengths. Nothing is read back to the host, so `indices` has the
capacity T * W and what lies behind indptr[T] is undefined.)");

  module.def("translate_topk", &translate_topk, named("topk"), named("request_of_query"), named("block_table"),
             nb::kw_only(), named("rows_per_page") = 64, named("pages") = -1, named("valid") = nb::none(),
             named("lengths") = nb::none(), named("form") = "dense", named("out") = nb::none(),
             named("workspace") = nb::none(), named("stream") = nb::none(),
             nb::sig("def translate_topk(topk: Array, request_of_query: Array, block_table: Array"
                     ", *, rows_per_page: int = 64, pages: int = -1, valid: Array | None = None, lengths: Array"
                     " | None = None, form: str = 'dense', out: DenseRows | RaggedRows | None = None, "
                     "workspace: Workspace | None = None, stream: int | object | None = None) -> "
                     "DenseRows | RaggedRows"),
             (std::string(R"(Turns a top-k result (entry numbers within a request) into cache slots:
e -> block_table[b, e // rows_per_page] * rows_per_page + e % rows_per_page.

topk              i32 or i64 [T, K]
request_of_query  i32 or i64 [T]
block_table       i32 or i64 [B, P], any row stride
pages             pages of the cache, -1 = unknown
valid             bool or u8 [T]: false gives length 0
lengths           i32 or i64 [T]: columns at or beyond are not interpreted

Entries that are negative or not in the table are dropped; the others keep their order and stand first.)") +
              result_note)
                 .c_str());

  module.def("window_rows", &window_rows, named("queries"), nb::kw_only(), named("query_count") = nb::none(),
             named("window") = 128, named("causal") = true, named("block_table") = nb::none(),
             named("rows_per_page") = 64, named("valid") = nb::none(), named("width") = nb::none(),
             named("form") = "range", named("out") = nb::none(), named("workspace") = nb::none(),
             named("stream") = nb::none(),
             nb::sig("def window_rows(queries: RequestQueries | PositionedQueries, *, query_count: int | None = None, "
                     "window: int = 128, causal: bool = True, block_table: Array"
                     " | None = None, rows_per_page: int = 64, valid: Array"
                     " | None = None, width: int | None = None, form: str = 'range', "
                     "out: DenseRows | RaggedRows | tuple | None = None, workspace: Workspace | None = None, "
                     "stream: int | object | None = None) -> DenseRows | RaggedRows | tuple"),
             (std::string(R"(The sliding window of every query: positions max(0, pos - window + 1) ... pos, ascending.

queries      RequestQueries (then query_count = T is needed) or PositionedQueries
causal       False: all queries of a request share one window (draft blocks); needs RequestQueries
block_table  i32 or i64 [B, P]: positions become slots; None: plain positions. Not for form 'range'
valid        bool or u8 [T]: false gives no rows
width        bound W of a list row, the latest W rows stay; default: window)") +
              result_note)
                 .c_str());

  module.def("compressed_rows", &compressed_rows, named("queries"), nb::kw_only(), named("query_count") = nb::none(),
             named("ratio") = 128, named("block_table") = nb::none(), named("rows_per_page") = 2,
             named("valid") = nb::none(), named("width") = 0, named("form") = "range", named("out") = nb::none(),
             named("workspace") = nb::none(), named("stream") = nb::none(),
             nb::sig("def compressed_rows(queries: RequestQueries | PositionedQueries, *, "
                     "query_count: int | None = None, ratio: int = 128, block_table: Array"
                     " | None = None, rows_per_page: int = 2, valid: Array"
                     " | None = None, width: int = 0, form: str = 'range', "
                     "out: DenseRows | RaggedRows | tuple | None = None, workspace: Workspace | None = None, "
                     "stream: int | object | None = None) -> DenseRows | RaggedRows | tuple"),
             (std::string(R"(All visible compressed rows of every query: entries 0 ... min((pos + 1) // ratio, W) - 1.

queries      RequestQueries (then query_count = T is needed) or PositionedQueries
block_table  i32 or i64 [B, P]: entries become slots; None: plain entry numbers. Not for form 'range'
valid        bool or u8 [T]: false gives no rows
width        bound W of a row; 0 means no bound for form 'range')") +
              result_note)
                 .c_str());

  module.def("combine", &combine, named("topk"), named("queries"), named("gathered"), nb::kw_only(),
             named("query_count"), named("rows_per_request"), named("compressed_rows") = 0, named("ratio") = 4,
             named("window") = 128, named("form") = "dense", named("out") = nb::none(), named("workspace") = nb::none(),
             named("stream") = nb::none(),
             nb::sig("def combine(topk: Array | None, queries: RequestQueries, gathered: Array"
                     ", *, query_count: int, rows_per_request: int, compressed_rows: int = 0, ratio: int = 4, "
                     "window: int = 128, form: str = 'dense', out: DenseRows | RaggedRows | None = None, "
                     "workspace: Workspace | None = None, stream: int | object | None = None) -> "
                     "DenseRows | RaggedRows"),
             (std::string(R"(One list (top-k, then window) for prefill over a flat workspace [B, M, 512].

Request b's compressed rows stand at [0, N) of its M rows, the last gathered[b] window tokens from row N on.

topk              i32 or i64 [T, K], or None for layers without compressed rows
gathered          i32 or i64 [B]
query_count       T
rows_per_request  M
compressed_rows   N)") +
              result_note)
                 .c_str());

  module.def("copy_to_graph_buffers", &copy_to_graph_buffers, named("source"), named("indices"), named("indptr"),
             nb::kw_only(), named("stream") = nb::none(),
             nb::sig("def copy_to_graph_buffers(source: RaggedRows, indices: Array, indptr: Array"
                     ", *, stream: int | object | None = None) -> None"),
             R"(Copies a CSR list into persistent buffers whose addresses a captured graph holds.

source   RaggedRows of T queries
indices  the buffer, same type as the source's indices; only what indptr covers is copied, cut at its capacity
indptr   [G + 1], G >= T; entries behind T repeat the last one, so that rows T ... G - 1 are empty)");
}

}  // namespace raggedmla::python
