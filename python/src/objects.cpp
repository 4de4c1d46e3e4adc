#include "objects.hpp"

namespace raggedmla::python {

namespace {

Fp8Encoding encoding_named(nb::handle object) {
  return choice<Fp8Encoding>(object, "encoding", {{"ocp", Fp8Encoding::ocp}, {"fnuz", Fp8Encoding::fnuz}});
}

/// The attribute of a class that gives back the array it was made of.
template <class Class>
auto array_of(Array Class::*member) {
  return [member](const Class& self) { return nb::object((self.*member).owner); };
}
template <class Class>
auto array_of(std::optional<Array> Class::*member) {
  return [member](const Class& self) { return self.*member ? (self.*member)->owner : nb::object(nb::none()); };
}

void bind_sources(nb::module_& module) {
  nb::class_<PyDenseKv>(module, "DenseKv", "Key/value rows [N, 512] bf16 in one flat buffer, any row stride.")
      .def(
          "__init__", [](PyDenseKv* self, nb::handle rows) { new (self) PyDenseKv{import_array(rows, "rows")}; },
          named("rows"), nb::sig("def __init__(self, rows: Array) -> None"))
      .def_prop_ro("rows", array_of(&PyDenseKv::rows), nb::sig("def rows(self) -> typing.Any"));

  nb::class_<PyPagedKv>(module, "PagedKv",
                        R"(Key/value rows in pages. Slot s is row s % rows_per_page of page s // rows_per_page.

pages          u8 [P, rows_per_page, 584] or [P, bytes] (fp8_ds_mla), or bf16 [P, rows_per_page, 512];
               pages.stride(0) is the page stride
rows_per_page  taken from pages where it is 3-D
encoding       'ocp' (e4m3fn) or 'fnuz' (e4m3fnuz, AMD gfx942 window rows); only for fp8 pages)")
      .def(
          "__init__",
          [](PyPagedKv* self, nb::handle pages, nb::handle rows_per_page, nb::handle encoding) {
            Array array = import_array(pages, "pages");
            if (rows_per_page.is_none() && array.view.rank < 3) {
              throw nb::value_error("rows_per_page is needed where pages is not 3-D");
            }
            const int rows = rows_per_page.is_none()
                                 ? integer<int>(nb::int_(array.view.shape[1]), "pages.shape[1], the rows per page,")
                                 : integer<int>(rows_per_page, "rows_per_page");
            new (self) PyPagedKv{std::move(array), rows, encoding_named(encoding)};
          },
          named("pages"), named("rows_per_page") = nb::none(), named("encoding") = "ocp",
          nb::sig("def __init__(self, pages: Array, rows_per_page: int | None = None, "
                  "encoding: str = 'ocp') -> None"))
      .def_prop_ro("pages", array_of(&PyPagedKv::pages), nb::sig("def pages(self) -> typing.Any"))
      .def_ro("rows_per_page", &PyPagedKv::rows_per_page);
}

void bind_selections(nb::module_& module) {
  nb::class_<PyRaggedRows>(module, "RaggedRows",
                           R"(Compressed sparse rows: query t reads indices[indptr[t] : indptr[t + 1]].

indices  i32 or i64 [capacity]; what lies behind indptr[T] is never read
indptr   i32 or i64 [T + 1]
lengths  i32 [T], only filled by operators that write lists

Unpacks into (indices, indptr).)")
      .def(
          "__init__",
          [](PyRaggedRows* self, nb::handle indices, nb::handle indptr, nb::handle lengths) {
            new (self) PyRaggedRows{import_array(indices, "indices"), import_array(indptr, "indptr"),
                                    import_optional(lengths, "lengths")};
          },
          named("indices"), named("indptr"), named("lengths") = nb::none(),
          nb::sig("def __init__(self, indices: Array, indptr: Array, "
                  "lengths: Array | None = None) -> None"))
      .def_prop_ro("indices", array_of(&PyRaggedRows::indices), nb::sig("def indices(self) -> typing.Any"))
      .def_prop_ro("indptr", array_of(&PyRaggedRows::indptr), nb::sig("def indptr(self) -> typing.Any"))
      .def_prop_ro("lengths", array_of(&PyRaggedRows::lengths), nb::sig("def lengths(self) -> typing.Any"))
      .def(
          "__iter__",
          [](const PyRaggedRows& self) { return nb::iter(nb::make_tuple(self.indices.owner, self.indptr.owner)); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[typing.Any]"));

  nb::class_<PyDenseRows>(module, "DenseRows",
                          R"(One row of W columns per query: query t reads indices[t, : lengths[t]].

indices  i32 or i64 [T, W], any row stride
lengths  i32 or i64 [T], clamped to [0, W]; None: all W columns

Unpacks into (indices, lengths).)")
      .def(
          "__init__",
          [](PyDenseRows* self, nb::handle indices, nb::handle lengths) {
            new (self) PyDenseRows{import_array(indices, "indices"), import_optional(lengths, "lengths")};
          },
          named("indices"), named("lengths") = nb::none(),
          nb::sig("def __init__(self, indices: Array, "
                  "lengths: Array | None = None) -> None"))
      .def_prop_ro("indices", array_of(&PyDenseRows::indices), nb::sig("def indices(self) -> typing.Any"))
      .def_prop_ro("lengths", array_of(&PyDenseRows::lengths), nb::sig("def lengths(self) -> typing.Any"))
      .def(
          "__iter__",
          [](const PyDenseRows& self) {
            return nb::iter(
                nb::make_tuple(self.indices.owner, self.lengths ? self.lengths->owner : nb::object(nb::none())));
          },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[typing.Any]"));

  nb::class_<PyRangeRows>(module, "RangeRows",
                          R"(No list: query t of request b reads the logical rows first[t] ... first[t] + count[t] - 1.

first, count   i32 or i64 [T]
query_start    i32 or i64 [B + 1]: request b owns queries query_start[b] ... query_start[b + 1] - 1
block_table    i32 or i64 [B, P]; or instead
row_base       i32 or i64 [B]: row r of request b is row row_base[b] + r
ring_rows      > 0: rows are taken modulo it first
max_queries_per_request  a hint for the schedule, 0 = unknown)")
      .def(
          "__init__",
          [](PyRangeRows* self, nb::handle first, nb::handle count, nb::handle query_start, nb::handle block_table,
             nb::handle row_base, nb::handle ring_rows, nb::handle max_queries_per_request) {
            new (self) PyRangeRows{import_array(first, "first"),
                                   import_array(count, "count"),
                                   import_array(query_start, "query_start"),
                                   import_optional(block_table, "block_table"),
                                   import_optional(row_base, "row_base"),
                                   integer<std::int64_t>(ring_rows, "ring_rows"),
                                   integer<std::int64_t>(max_queries_per_request, "max_queries_per_request")};
          },
          named("first"), named("count"), named("query_start"), named("block_table") = nb::none(),
          named("row_base") = nb::none(), named("ring_rows") = 0, named("max_queries_per_request") = 0,
          nb::sig("def __init__(self, first: Array, count: Array, "
                  "query_start: Array, block_table: Array | None = None, "
                  "row_base: Array | None = None, ring_rows: int = 0, "
                  "max_queries_per_request: int = 0) -> None"));
}

void bind_layouts(nb::module_& module) {
  nb::class_<PyRequestQueries>(module, "RequestQueries",
                               R"(Queries by request; the last query of request b stands at sequence_lengths[b] - 1.

query_start       i32 or i64 [B + 1]
sequence_lengths  i32 or i64 [B], tokens of the request after this step)")
      .def(
          "__init__",
          [](PyRequestQueries* self, nb::handle query_start, nb::handle sequence_lengths) {
            new (self) PyRequestQueries{import_array(query_start, "query_start"),
                                        import_array(sequence_lengths, "sequence_lengths")};
          },
          named("query_start"), named("sequence_lengths"),
          nb::sig("def __init__(self, query_start: Array, "
                  "sequence_lengths: Array) -> None"));

  nb::class_<PyPositionedQueries>(module, "PositionedQueries",
                                  R"(Queries with explicit positions (negative: no rows).

positions         i32 or i64 [T]
request_of_query  i32 or i64 [T])")
      .def(
          "__init__",
          [](PyPositionedQueries* self, nb::handle positions, nb::handle request_of_query) {
            new (self) PyPositionedQueries{import_array(positions, "positions"),
                                           import_array(request_of_query, "request_of_query")};
          },
          named("positions"), named("request_of_query"),
          nb::sig("def __init__(self, positions: Array, "
                  "request_of_query: Array) -> None"));
}

}  // namespace

KvSource kv_source(nb::handle object) {
  if (const PyPagedKv * paged; nb::try_cast(object, paged) && paged != nullptr) return paged->view();
  if (const PyDenseKv * dense; nb::try_cast(object, dense) && dense != nullptr) return dense->view();
  refuse_type("kv", object, "DenseKv or PagedKv");
}

RowSelection row_selection(nb::handle object) {
  if (const PyDenseRows * dense; nb::try_cast(object, dense) && dense != nullptr) return dense->view();
  if (const PyRaggedRows * ragged; nb::try_cast(object, ragged) && ragged != nullptr) return ragged->view();
  if (const PyRangeRows * range; nb::try_cast(object, range) && range != nullptr) return range->view();
  refuse_type("rows", object, "RaggedRows, DenseRows or RangeRows");
}

QueryLayout query_layout(nb::handle object) {
  if (const PyRequestQueries * requests; nb::try_cast(object, requests) && requests != nullptr) return requests->view();
  if (const PyPositionedQueries * positioned; nb::try_cast(object, positioned) && positioned != nullptr) {
    return positioned->view();
  }
  refuse_type("queries", object, "RequestQueries or PositionedQueries");
}

const Array& layout_array(nb::handle object) {
  if (const PyRequestQueries * requests; nb::try_cast(object, requests) && requests != nullptr) {
    return requests->query_start;
  }
  return argument<const PyPositionedQueries>(object, "queries", "RequestQueries or PositionedQueries").positions;
}

Schedule::Kernel kernel_named(nb::handle name) {
  using Kernel = Schedule::Kernel;
  return choice<Kernel>(name, "kernel",
                        {{"automatic", Kernel::automatic},
                         {"reference", Kernel::reference},
                         {"cpu", Kernel::cpu},
                         {"portable", Kernel::portable},
                         {"sm90", Kernel::sm90}});
}

void bind_objects(nb::module_& module) {
  bind_sources(module);
  bind_selections(module);
  bind_layouts(module);
  nb::class_<PySegment>(module, "Segment",
                        "A KV source (DenseKv, PagedKv) and the rows that each query reads from it (RaggedRows, "
                        "DenseRows, RangeRows).")
      .def(
          "__init__",
          [](PySegment* self, nb::handle kv, nb::handle rows) {
            new (self) PySegment{nb::borrow(kv), nb::borrow(rows), {kv_source(kv), row_selection(rows)}};
          },
          named("kv"), named("rows"),
          nb::sig("def __init__(self, kv: DenseKv | PagedKv, rows: RaggedRows | DenseRows | RangeRows) -> None"))
      .def_ro("kv", &PySegment::kv)
      .def_ro("rows", &PySegment::rows);
}

}  // namespace raggedmla::python
