// Cases of the row-list operators. A line of a table says the shape; the data made from it hold everything a caller can
// get wrong: lengths out of range, holes, garbage in tables, padding requests, queries that belong to nobody.
#pragma once

#include <ostream>
#include <string>

#include "raggedmla/row_lists.hpp"
#include "support/tensor.hpp"

namespace raggedmla::test {

enum class ListForm { dense, ragged, range };

/// Where a list goes. Everything starts as -77, so that what must stay untouched is compared too.
struct ListTensors {
  /// `shift`: entries between a 256-byte boundary and the start of a ragged list, or behind each dense row.
  ListTensors(ListForm form, std::int64_t queries, std::int64_t width, std::int64_t shift = 0,
              DataType indptr_type = DataType::i32, DataType index_type = DataType::i32);

  ListForm form;
  TensorView indices_view;
  Tensor indices, indptr, lengths;  // dense, ragged
  Tensor first, count;              // range

  RaggedOutput ragged() const { return {indices_view, indptr, lengths}; }
  ListOutput list() const;
  RangeOrListOutput any() const;
};

/// Fails at the first difference of any output.
void expect_same(const ListTensors& result, const ListTensors& expected);

struct BuildCase {
  enum Lengths { absent, wild, full, none };
  std::string name;
  std::int64_t queries, width;
  Lengths length = wild;
  DataType type = DataType::i32;  // of entries and lengths
  std::int64_t row_stride = 0;    // 0 = packed
  std::int64_t column_stride = 1;
  std::int64_t row_limit = -1;
  std::int64_t shift = 0;
  DataType indptr_type = DataType::i32;
  std::int64_t length_stride = 3;
};
struct BuildData {
  explicit BuildData(const BuildCase& c);
  Tensor indices, lengths;
  ListTensors out;
  BuildRagged arguments;
};

struct TranslateCase {
  std::string name;
  std::int64_t queries, width;
  ListForm form = ListForm::ragged;
  bool lengths = false, valid = false;
  DataType type = DataType::i32;
  int rows_per_page = 64;
  std::int64_t pages = -1;
};
struct TranslateData {
  explicit TranslateData(const TranslateCase& c);
  Tensor topk, requests, table, lengths, valid;
  ListTensors out;
  TranslateTopk arguments;
};

/// Queries of some requests, up to `most` each, as RequestQueries and as PositionedQueries.
struct QueryData {
  QueryData(std::int64_t requests, std::int64_t most, DataType type, Random& random);
  std::int64_t requests, count;
  Tensor query_start, sequence_lengths, positions, request_of_query;
  RequestQueries by_request() const { return {query_start, sequence_lengths}; }
  QueryLayout layout(bool positioned) const;
};

/// window_rows and compressed_rows.
struct RangedCase {
  std::string name;
  std::int64_t requests, most_queries;
  ListForm form = ListForm::dense;
  std::int64_t width = 128;
  int window = 128, ratio = 128;
  bool table = true, positioned = false, valid = false, causal = true;
  DataType type = DataType::i32;
};
struct RangedData {
  explicit RangedData(const RangedCase& c);
  Random random;
  QueryData queries;
  Tensor table, valid;
  ListTensors out;
  WindowRows window;
  CompressedRows compressed;
};

struct CombineCase {
  std::string name;
  std::int64_t requests, most_queries, topk_width;  // topk_width 0 = no topk
  ListForm form = ListForm::dense;
  int ratio = 4, window = 128;
  DataType type = DataType::i32;
};
struct CombineData {
  explicit CombineData(const CombineCase& c);
  Random random;
  QueryData queries;
  Tensor topk, gathered;
  ListTensors out;
  Combine arguments;
};

struct CopyCase {
  std::string name;
  std::int64_t queries, padded_queries, entries, capacity;
  bool disordered = false;  // offsets that go up and down and beyond the buffer
  std::int64_t shift = 0;
  DataType type = DataType::i32;
};
struct CopyData {
  explicit CopyData(const CopyCase& c);
  Tensor indices, indptr;
  ListTensors out;
  CopyToGraphBuffers arguments;
};

template <class Case>
concept ListCase = requires(const Case& c) {
  c.name;
  c.type;
};
/// How GoogleTest prints a case, instead of its bytes, at every start of the tests.
template <ListCase Case>
void PrintTo(const Case& c, std::ostream* stream) {
  *stream << c.name;
}

}  // namespace raggedmla::test
