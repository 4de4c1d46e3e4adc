#include "support/row_list_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace raggedmla::test {

namespace {

template <class Value>
void fill(Tensor& tensor, const Value& value) {
  const TensorView& view = tensor.view();
  for (std::int64_t i = 0; i < view.shape[0]; ++i) {
    if (view.rank == 1) tensor.set({i}, static_cast<double>(value()));
    for (std::int64_t j = 0; view.rank == 2 && j < view.shape[1]; ++j) tensor.set({i, j}, static_cast<double>(value()));
  }
}

/// Block-table entries: mostly pages, but also holes and garbage.
std::int64_t table_entry(Random& random) {
  const std::int64_t kind = random.integer(0, 19);
  return kind == 0 ? -1 : kind == 1 ? 0x7FFFFFFF : kind == 2 ? -1000000 : random.integer(0, 4000);
}

Tensor block_table(std::int64_t requests, std::int64_t columns, DataType type, Random& random) {
  Tensor table(type, {requests, columns}, {columns + 3, 1});
  fill(table, [&] { return table_entry(random); });
  return table;
}

void expect_same(const Tensor& result, const Tensor& expected, const char* name) {
  ASSERT_EQ(result.size(), expected.size()) << name;
  const TensorView& view = result.view();
  const bool packed = view.rank == 1 && view.stride[0] == 1;
  const auto bytes = static_cast<std::size_t>(view.size()) * element_bytes(view.dtype);
  const bool same = packed && (bytes == 0 || std::memcmp(view.data, expected.view().data, bytes) == 0);
  for (std::int64_t n = 0; !same && n < result.size(); ++n) {
    ASSERT_EQ(result.flat(n), expected.flat(n)) << name << ", element " << n << " of " << result.size();
  }
  EXPECT_TRUE(bytes > (1 << 22) || result.padding_intact()) << name;
}

}  // namespace

// ---- outputs -------------------------------------------------------------------------------------------------------

ListTensors::ListTensors(ListForm form_, std::int64_t queries, std::int64_t width, std::int64_t shift,
                         DataType indptr_type, DataType index_type)
    : form(form_) {
  if (form == ListForm::range) {
    (first = Tensor(DataType::i32, {queries}, {3})).fill(-77);
    (count = Tensor(DataType::i32, {queries})).fill(-77);
    return;
  }
  (lengths = Tensor(DataType::i32, {queries}, {2})).fill(-77);
  if (form == ListForm::dense) {
    (indices = Tensor(DataType::i32, {queries, width}, {width + shift, 1})).fill(-77);
    indices_view = indices;
    return;
  }
  const std::int64_t capacity = queries * width + 5;
  (indices = Tensor(index_type, {capacity + shift})).fill(-77);
  (indptr = Tensor(indptr_type, {queries + 1})).fill(-77);
  indices_view = indices;
  indices_view.data =
      static_cast<char*>(indices_view.data) + static_cast<std::size_t>(shift) * element_bytes(index_type);
  indices_view.shape[0] = capacity;
}

ListOutput ListTensors::list() const {
  if (form == ListForm::dense) return DenseOutput{indices_view, lengths};
  return ragged();
}

RangeOrListOutput ListTensors::any() const {
  if (form == ListForm::range) return RangeOutput{first, count};
  if (form == ListForm::dense) return DenseOutput{indices_view, lengths};
  return ragged();
}

void expect_same(const ListTensors& result, const ListTensors& expected) {
  if (result.form == ListForm::range) {
    expect_same(result.first, expected.first, "first");
    expect_same(result.count, expected.count, "count");
    return;
  }
  expect_same(result.indices, expected.indices, "indices");
  expect_same(result.lengths, expected.lengths, "lengths");
  if (result.form == ListForm::ragged) expect_same(result.indptr, expected.indptr, "indptr");
}

// ---- build_ragged --------------------------------------------------------------------------------------------------

BuildData::BuildData(const BuildCase& c) : out(ListForm::ragged, c.queries, c.width, c.shift, c.indptr_type) {
  Random random(1);
  const std::int64_t row_stride = c.row_stride > 0 ? c.row_stride : c.width * c.column_stride;
  indices = Tensor(c.type, {c.queries, c.width}, {row_stride, c.column_stride});
  fill(indices, [&] { return random.integer(-3, 70000); });
  if (c.type == DataType::i64 && indices.size() > 1) indices.set_flat(indices.size() / 2, 0x1p40);
  arguments = {indices, {}, out.ragged(), c.row_limit};
  if (c.length == BuildCase::absent) return;
  lengths = Tensor(c.type, {c.queries}, {c.length_stride});
  fill(lengths, [&]() -> std::int64_t {
    if (c.length != BuildCase::wild) return c.length == BuildCase::full ? c.width : 0;
    const std::int64_t kind = random.integer(0, 15);
    return kind == 0 ? -5 : kind == 1 ? 0x7FFFFFFF : random.integer(0, c.width);
  });
  arguments.lengths = lengths;
}

// ---- translate_topk ------------------------------------------------------------------------------------------------

TranslateData::TranslateData(const TranslateCase& c) : out(c.form, c.queries, c.width, 2) {
  Random random(2);
  const std::int64_t batch = std::max<std::int64_t>(1, c.queries / 4), columns = 40;
  topk = Tensor(c.type, {c.queries, c.width}, {c.width + 1, 1});
  fill(topk, [&] {
    const std::int64_t kind = random.integer(0, 9);
    return kind == 0 ? -1 : kind == 1 ? 0x7FFFFFF0 : random.integer(0, columns * c.rows_per_page + 5);
  });
  requests = Tensor(c.type, {c.queries}, {2});
  fill(requests,
       [&] { return random.integer(0, 30) == 0 ? random.integer(-1, batch + 1) : random.integer(0, batch - 1); });
  table = block_table(batch, columns, c.type, random);
  arguments.topk = topk;
  arguments.request_of_query = requests;
  arguments.block_table = table;
  arguments.rows_per_page = c.rows_per_page;
  arguments.pages = c.pages;
  arguments.out = out.list();
  if (c.lengths) {
    lengths = Tensor(DataType::i32, {c.queries});
    fill(lengths, [&] { return random.integer(-2, c.width + 2); });
    arguments.lengths = lengths;
  }
  if (c.valid) {
    valid = Tensor(DataType::boolean, {c.queries});
    fill(valid, [&] { return random.integer(0, 3) > 0; });
    arguments.valid = valid;
  }
}

// ---- queries -------------------------------------------------------------------------------------------------------

QueryData::QueryData(std::int64_t batch, std::int64_t most, DataType type, Random& random) : requests(batch), count(0) {
  query_start = Tensor(type, {batch + 1}, {2});
  sequence_lengths = Tensor(type, {batch});
  query_start.set({0}, 0);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t queries = random.integer(0, most);
    count += queries;
    query_start.set({b + 1}, static_cast<double>(count));
    // A padding request has length 0; some are shorter than their queries.
    const std::int64_t kind = random.integer(0, 7);
    const std::int64_t length = kind == 0 ? 0 : kind == 1 ? random.integer(0, most) : queries + random.integer(0, 3000);
    sequence_lengths.set({b}, static_cast<double>(length));
  }
  count += 2;  // belong to nobody
  positions = Tensor(type, {count});
  request_of_query = Tensor(type, {count});
  fill(positions, [&] { return random.integer(0, 9) == 0 ? random.integer(-5, 3) : random.integer(0, 3000); });
  fill(request_of_query, [&] { return random.integer(-1, batch); });
}

QueryLayout QueryData::layout(bool positioned) const {
  if (positioned) return PositionedQueries{positions, request_of_query};
  return by_request();
}

// ---- window_rows, compressed_rows ----------------------------------------------------------------------------------

RangedData::RangedData(const RangedCase& c)
    : random(3), queries(c.requests, c.most_queries, c.type, random), out(c.form, queries.count, c.width, 1) {
  const auto common = [&](auto& arguments) {
    arguments.queries = queries.layout(c.positioned);
    arguments.query_count = queries.count;
    arguments.width = c.form == ListForm::dense ? 0 : c.width;
    arguments.out = out.any();
    if (c.table && c.form != ListForm::range) arguments.block_table = table;
    if (c.valid) arguments.valid = valid;
  };
  table = block_table(c.requests, 30, c.type, random);
  valid = Tensor(DataType::u8, {queries.count}, {3});
  fill(valid, [&] { return random.integer(0, 3) > 0; });
  common(window);
  common(compressed);
  window.window = c.window;
  window.causal = c.causal;
  compressed.ratio = c.ratio;
}

// ---- combine -------------------------------------------------------------------------------------------------------

CombineData::CombineData(const CombineCase& c)
    : random(4),
      queries(c.requests, c.most_queries, c.type, random),
      out(c.form, queries.count, c.topk_width + c.window, c.form == ListForm::dense ? 3 : 1) {
  arguments.compressed_rows = 600;
  arguments.rows_per_request = 600 + c.window + c.most_queries / 2;
  topk = Tensor(c.type, {queries.count, c.topk_width}, {c.topk_width + 2, 1});
  fill(topk, [&] { return random.integer(-1, 601); });
  gathered = Tensor(c.type, {c.requests}, {2});
  fill(gathered, [&] { return random.integer(-1, c.most_queries + c.window); });
  if (c.topk_width > 0) arguments.topk = topk;
  arguments.queries = queries.by_request();
  arguments.query_count = queries.count;
  arguments.gathered = gathered;
  arguments.ratio = c.ratio;
  arguments.window = c.window;
  arguments.out = out.list();
}

// ---- copy_to_graph_buffers -----------------------------------------------------------------------------------------

CopyData::CopyData(const CopyCase& c) : out(ListForm::ragged, c.padded_queries, 0, c.shift, c.type, c.type) {
  Random random(5);
  indices = Tensor(c.type, {c.entries + 100});
  fill(indices, [&] { return random.integer(-1, 70000); });
  indptr = Tensor(c.type, {c.queries + 1}, {2});
  for (std::int64_t t = 0; t <= c.queries; ++t) {
    const std::int64_t ordered = c.queries > 0 ? t * c.entries / c.queries : 0;
    indptr.set({t}, static_cast<double>(c.disordered ? random.integer(-9, 2 * c.entries) : ordered));
  }
  (out.indices = Tensor(c.type, {c.capacity + c.shift})).fill(-77);
  out.indices_view = out.indices;
  out.indices_view.data =
      static_cast<char*>(out.indices_view.data) + static_cast<std::size_t>(c.shift) * element_bytes(c.type);
  out.indices_view.shape[0] = c.capacity;
  arguments = {{indices, indptr}, out.indices_view, out.indptr};
}

}  // namespace raggedmla::test
