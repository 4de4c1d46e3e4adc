// The Python classes that stand for the library's views: KV sources, row selections, query layouts, segments.
// Each holds the arrays that it was made of and reads their addresses once, when it is made.
#pragma once

#include <variant>

#include "array.hpp"
#include "raggedmla/attention.hpp"
#include "scalars.hpp"

namespace raggedmla::python {

struct PyDenseKv {
  Array rows;
  raggedmla::DenseKv view() const { return {rows.view}; }
};

struct PyPagedKv {
  Array pages;
  int rows_per_page = 64;
  Fp8Encoding encoding = Fp8Encoding::ocp;
  raggedmla::PagedKv view() const { return {pages.view, rows_per_page, encoding}; }
};

struct PyRaggedRows {
  Array indices, indptr;
  std::optional<Array> lengths;  // only written by list operators
  raggedmla::RaggedRows view() const { return {indices.view, indptr.view}; }
};

struct PyDenseRows {
  Array indices;
  std::optional<Array> lengths;
  raggedmla::DenseRows view() const { return {indices.view, python::view(lengths)}; }
};

struct PyRangeRows {
  Array first, count, query_start;
  std::optional<Array> block_table, row_base;
  std::int64_t ring_rows = 0, max_queries_per_request = 0;
  raggedmla::RangeRows view() const {
    return {first.view,
            count.view,
            query_start.view,
            python::view(block_table),
            python::view(row_base),
            ring_rows,
            max_queries_per_request};
  }
};

struct PyRequestQueries {
  Array query_start, sequence_lengths;
  raggedmla::RequestQueries view() const { return {query_start.view, sequence_lengths.view}; }
};

struct PyPositionedQueries {
  Array positions, request_of_query;
  raggedmla::PositionedQueries view() const { return {positions.view, request_of_query.view}; }
};

struct PySegment {
  nb::object kv, rows;  // objects of the classes above
  raggedmla::Segment view;
};

KvSource kv_source(nb::handle object);
RowSelection row_selection(nb::handle object);
QueryLayout query_layout(nb::handle object);

/// Any array of the layout: it says where the queries are.
const Array& layout_array(nb::handle object);

/// The `kernel` argument.
Schedule::Kernel kernel_named(nb::handle name);

/// Every class and function of the module, by concept.
void bind_objects(nb::module_& module);
void bind_row_lists(nb::module_& module);
void bind_kv_cache(nb::module_& module);
void bind_attention(nb::module_& module);
void bind_device(nb::module_& module);
void bind_command_line(nb::module_& module);  // where the command line's libraries were found

}  // namespace raggedmla::python
