// Row lists against values worked out by hand, on every backend and by definition; what bad arguments get; properties.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "support/error_message.hpp"
#include "support/row_list_calls.hpp"
#include "support/row_list_cases.hpp"

namespace raggedmla::test {

namespace {

constexpr DataType i32 = DataType::i32, i64 = DataType::i64;
using Values = std::vector<double>;

Tensor ints(const Values& values, DataType type = i32) {
  Tensor tensor(type, {static_cast<std::int64_t>(values.size())});
  tensor.fill_values(values);
  return tensor;
}
Tensor table(std::int64_t rows, const Values& values, DataType type = i32) {
  Tensor tensor(type, {rows, static_cast<std::int64_t>(values.size()) / rows});
  tensor.fill_values(values);
  return tensor;
}
Values values(const Tensor& tensor) {
  Values result;
  for (std::int64_t n = 0; n < tensor.size(); ++n) result.push_back(tensor.flat(n));
  return result;
}

/// A dense output of a few rows, compared row by row.
struct Dense {
  Dense(std::int64_t queries, std::int64_t width) : list(ListForm::dense, queries, width) {}
  ListTensors list;
  Values lengths() const { return values(list.lengths); }
  Values rows() const { return values(list.indices); }
};

class RowLists : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!present(GetParam())) GTEST_SKIP() << "no GPU";
  }
  template <class Arguments>
  void run(const Arguments& arguments) {
    run_lists(arguments, GetParam());
  }
};

}  // namespace

TEST_P(RowLists, LengthsAreClampedAndTheTailIsLeftAlone) {
  const Tensor indices = table(4, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}),
               lengths = ints({-3, 5, 2, 9});
  Tensor out = ints(Values(16, -7)), indptr = ints(Values(5, -7));
  run(BuildRagged{indices, lengths, {out, indptr, {}}, -1});
  EXPECT_EQ(values(indptr), (Values{0, 0, 4, 6, 10}));
  EXPECT_EQ(values(out), (Values{5, 6, 7, 8, 9, 10, 13, 14, 15, 16, -7, -7, -7, -7, -7, -7}));
}

TEST_P(RowLists, RowLimitMakesHolesInPlace) {
  const Tensor indices = table(2, {0, 5, 4, -2, 99, 3});
  Tensor out = ints(Values(6, -7)), indptr = ints(Values(3, -7));
  run(BuildRagged{indices, {}, {out, indptr, {}}, 5});
  EXPECT_EQ(values(out), (Values{0, -1, 4, -1, -1, 3}));
}

TEST_P(RowLists, AnEntryThatDoesNotFitBecomesAHole) {
  const Tensor indices = table(1, {0x1p32 + 3, 7, -0x1p40}, i64);
  Tensor out = ints(Values(3, -7)), indptr = ints(Values(2, -7));
  run(BuildRagged{indices, {}, {out, indptr, {}}, -1});
  EXPECT_EQ(values(out), (Values{-1, 7, -1}));
}

TEST_P(RowLists, NoQueriesStillWriteTheFirstOffset) {
  Tensor indices(i32, {0, 8}), topk(i32, {0, 8}), nothing(i32, {0}), start = ints({0}), blocks(i32, {0, 4});
  Tensor out = ints({-7}), indptr = ints({-7});
  const RaggedOutput ragged{out, indptr, {}};
  const auto expect_zero = [&](const auto& arguments) {
    indptr.fill(-7);
    run(arguments);
    EXPECT_EQ(values(indptr), Values{0});
    EXPECT_EQ(values(out), Values{-7});
  };
  expect_zero(BuildRagged{indices, nothing, ragged, -1});
  TranslateTopk translate;
  translate.topk = topk;
  translate.request_of_query = nothing;
  translate.block_table = blocks;
  translate.out = ragged;
  expect_zero(translate);
  WindowRows window;
  window.queries = RequestQueries{start, nothing};
  window.width = 128;
  window.out = ragged;
  expect_zero(window);
  CompressedRows compressed;
  compressed.queries = RequestQueries{start, nothing};
  compressed.width = 8;
  compressed.out = ragged;
  expect_zero(compressed);
  Combine combined;
  combined.queries = {start, nothing};
  combined.gathered = nothing;
  combined.out = ragged;
  expect_zero(combined);
  expect_zero(CopyToGraphBuffers{{nothing, start}, out, indptr});
}

TEST_P(RowLists, TopkBecomesSlotsWithoutHoles) {
  // Pages of 4: entry 5 of request 1 is row 1 of the page in column 1.
  const Tensor topk = table(3, {5, -1, 0, 9, 1, 2, 3, 4, 7, 6, 5, 4}), requests = ints({1, 0, 2});
  const Tensor blocks = table(2, {10, -1, 20, 21});
  Dense out(3, 4);
  TranslateTopk call;
  call.topk = topk;
  call.request_of_query = requests;
  call.block_table = blocks;
  call.rows_per_page = 4;
  call.out = out.list.list();
  run(call);
  EXPECT_EQ(out.lengths(), (Values{2, 3, 0}));
  EXPECT_EQ(out.rows(), (Values{85, 80, -1, -1, 41, 42, 43, -1, -1, -1, -1, -1}));
}

TEST_P(RowLists, FirstNineTokensOfARequest) {
  const Tensor start = ints({0, 9}), lengths = ints({9});
  Dense window(9, 128), compressed(9, 4);
  WindowRows windows;
  windows.queries = RequestQueries{start, lengths};
  windows.query_count = 9;
  windows.out = window.list.any();
  run(windows);
  EXPECT_EQ(window.lengths(), (Values{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  CompressedRows visible;
  visible.queries = RequestQueries{start, lengths};
  visible.query_count = 9;
  visible.ratio = 4;
  visible.out = compressed.list.any();
  run(visible);
  EXPECT_EQ(compressed.lengths(), (Values{0, 0, 0, 1, 1, 1, 1, 2, 2}));
  EXPECT_EQ(compressed.list.indices.get({8, 1}), 1);
}

TEST_P(RowLists, WindowEndsAtThePositionAndGoesThroughTheTable) {
  // Position 6 and window 4: rows 3 to 6, pages of 2.
  const Tensor positions = ints({6}), requests = ints({0}), blocks = table(1, {9, 8, -1, 6});
  Dense out(1, 6);
  WindowRows call;
  call.queries = PositionedQueries{positions, requests};
  call.query_count = 1;
  call.window = 4;
  call.block_table = blocks;
  call.rows_per_page = 2;
  call.out = out.list.any();
  run(call);
  EXPECT_EQ(out.lengths(), Values{4});
  EXPECT_EQ(out.rows(), (Values{17, -1, -1, 12, -1, -1}));
}

TEST_P(RowLists, DraftBlockSharesOneWindow) {
  // 10 tokens before, 3 drafts: all see rows 6 to 12 with window 4; of width 5 the latest stay.
  const Tensor start = ints({0, 3}), lengths = ints({13});
  Tensor first = ints(Values(3, -7)), count = ints(Values(3, -7));
  WindowRows call;
  call.queries = RequestQueries{start, lengths};
  call.query_count = 3;
  call.window = 4;
  call.causal = false;
  call.out = RangeOutput{first, count};
  run(call);
  EXPECT_EQ(values(first), (Values{6, 6, 6}));
  EXPECT_EQ(values(count), (Values{7, 7, 7}));
  call.width = 5;
  run(call);
  EXPECT_EQ(values(first), (Values{8, 8, 8}));
  EXPECT_EQ(values(count), (Values{5, 5, 5}));
}

TEST_P(RowLists, NegativePositionsOfAWarmUpBatchHaveNoRows) {
  const Tensor positions = ints({-1, -5}, i64), requests = ints({0, 0}, i64);
  Dense window(2, 128), compressed(2, 8);
  WindowRows windows;
  windows.queries = PositionedQueries{positions, requests};
  windows.query_count = 2;
  windows.out = window.list.any();
  run(windows);
  EXPECT_EQ(window.lengths(), (Values{0, 0}));
  CompressedRows visible;
  visible.queries = PositionedQueries{positions, requests};
  visible.query_count = 2;
  visible.ratio = 4;
  visible.out = compressed.list.any();
  run(visible);
  EXPECT_EQ(compressed.lengths(), (Values{0, 0}));
}

TEST_P(RowLists, APaddingRequestWithSpeculativeQueriesHasNoRows) {
  // Sequence length 0 with two queries puts them at positions -2 and -1; the third query belongs to nobody.
  const Tensor start = ints({0, 2}), lengths = ints({0});
  Dense out(3, 8);
  CompressedRows call;
  call.queries = RequestQueries{start, lengths};
  call.query_count = 3;
  call.ratio = 4;
  call.out = out.list.any();
  run(call);
  EXPECT_EQ(out.lengths(), (Values{0, 0, 0}));
  EXPECT_EQ(out.rows(), Values(24, -1));
}

TEST_P(RowLists, GarbageInQueriesIsHarmless) {
  const Tensor start = ints({0x1p62, -0x1p62, 2}, i64), lengths = ints({0x1p62, -0x1p62}, i64);
  const Tensor positions = ints({0x1p62, -0x1p62}, i64), requests = ints({0x1p62, 0}, i64), blocks = table(2, {5, 6});
  for (const QueryLayout& queries :
       {QueryLayout(RequestQueries{start, lengths}), QueryLayout(PositionedQueries{positions, requests})}) {
    ListTensors out(ListForm::ragged, 2, 16);
    WindowRows call;
    call.queries = queries;
    call.query_count = 2;
    call.block_table = blocks;
    call.width = 16;
    call.out = out.any();
    run(call);
    EXPECT_EQ(values(out.indptr), (Values{0, 0, 0}));
  }
}

TEST_P(RowLists, CombinedListOfTheSecondRequest) {
  // Workspace rows per request 20, of them 8 compressed. Request 1: position 9 of 10 tokens, 5 gathered, window 3.
  const Tensor topk = table(2, {0, 0, 1, 8}), start = ints({0, 1, 2}), lengths = ints({3, 10}), gathered = ints({3, 5});
  Dense out(2, 6);
  Combine call;
  call.topk = topk;
  call.queries = {start, lengths};
  call.query_count = 2;
  call.gathered = gathered;
  call.rows_per_request = 20;
  call.compressed_rows = 8;
  call.ratio = 4;
  call.window = 3;
  call.out = out.list.list();
  run(call);
  // Request 0: (2 + 1) / 4 = 0 compressed, 3 window rows. Request 1: entries 1 and 8 (a hole: only 8 rows), 3 window
  // rows.
  EXPECT_EQ(out.lengths(), (Values{3, 5}));
  EXPECT_EQ(out.rows(), (Values{8, 9, 10, -1, -1, -1, 21, -1, 30, 31, 32, -1}));
}

TEST_P(RowLists, PaddedGraphRowsAreEmpty) {
  const Tensor source = ints({4, 5, 6, 70, 80}), offsets = ints({0, 1, 3});
  Tensor out = ints(Values(6, -7)), indptr = ints(Values(6, -7));
  run(CopyToGraphBuffers{{source, offsets}, out, indptr});
  EXPECT_EQ(values(indptr), (Values{0, 1, 3, 3, 3, 3}));
  EXPECT_EQ(values(out), (Values{4, 5, 6, -7, -7, -7}));
}

INSTANTIATE_TEST_SUITE_P(Backends, RowLists, testing::ValuesIn(list_backends()),
                         [](const auto& instance) { return instance.param.name; });

// ---- bad arguments -------------------------------------------------------------------------------------------------

namespace {
template <class Arguments>
std::string message(const Arguments& arguments) {
  return message_of([&] { enqueue(arguments, {}, {}); });
}
}  // namespace

TEST(RowListErrors, NameTheArgument) {
  const Tensor indices(i32, {3, 4}), lengths(i32, {2}), floats(DataType::f32, {3, 4}), start = ints({0, 3}),
                                                                                       one = ints({3});
  Tensor out(i32, {12}), indptr(i32, {4}), small(i32, {11});
  const RaggedOutput ragged{out, indptr, {}};
  EXPECT_EQ(message(BuildRagged{floats, {}, ragged, -1}), "build_ragged: indices is f32, expected i32 or i64");
  EXPECT_EQ(message(BuildRagged{indices, lengths, ragged, -1}), "build_ragged: lengths has shape [2], expected [3]");
  EXPECT_EQ(message(BuildRagged{indices, {}, {small, indptr, {}}, -1}),
            "build_ragged: out.indices has 11 entries, expected at least 3 queries * 4 entries");
  TensorView elsewhere = indptr;
  elsewhere.device = {DeviceType::cuda, 1};
  EXPECT_EQ(message(BuildRagged{indices, {}, {out, elsewhere, {}}, -1}),
            "build_ragged: out.indptr is on cuda:1, expected cpu as indices");
  const TensorView broadcast(out.view().data, i32, {12}, {0});
  EXPECT_EQ(message(BuildRagged{indices, {}, {broadcast, indptr, {}}, -1}),
            "build_ragged: out.indices is an output with stride 0 in dimension 0");

  WindowRows window;
  window.queries = PositionedQueries{one, one};
  window.query_count = 1;
  window.causal = false;
  window.out = ragged;
  EXPECT_EQ(message(window), "window_rows: queries are PositionedQueries, expected RequestQueries with causal = false");
  window.queries = RequestQueries{start, one};
  window.query_count = 3;
  EXPECT_EQ(message(window), "window_rows: width is 0, expected at least 1");
  window.block_table = indices;
  EXPECT_EQ(message(window), "window_rows: block_table has 3 rows, expected 1 as queries.query_start says");
  const Tensor three(i32, {1, 3});
  Tensor first(i32, {3});
  window.block_table = three;
  window.out = RangeOutput{first, first};
  EXPECT_EQ(message(window), "window_rows: block_table is given, expected none: a range holds logical rows");
  window.rows_per_page = 0;
  EXPECT_EQ(message(window), "window_rows: rows_per_page is 0, expected at least 1");

  Combine combined;
  combined.queries = {start, one};
  combined.query_count = 3;
  combined.gathered = one;
  combined.rows_per_request = std::numeric_limits<std::int64_t>::max() / 2;
  combined.out = ragged;
  EXPECT_EQ(message(combined),
            "combine: rows_per_request times the requests exceeds 2^31 - 1, the largest row of an i32 list");
  combined.rows_per_request = 10;
  combined.compressed_rows = 11;
  EXPECT_EQ(message(combined), "combine: rows_per_request is 10, expected at least 11");
  combined.compressed_rows = 5;
  Tensor narrow(i32, {3, 9});
  combined.out = DenseOutput{narrow, {}};
  EXPECT_EQ(message(combined), "combine: out.indices has 9 columns, expected at least 128");

  const Tensor wide(i64, {12});
  EXPECT_EQ(message(CopyToGraphBuffers{{wide, indptr}, out, indptr}),
            "copy_to_graph_buffers: indices is i32, expected i64");
  Tensor short_indptr(i32, {3});
  EXPECT_EQ(message(CopyToGraphBuffers{{out, indptr}, out, short_indptr}),
            "copy_to_graph_buffers: indptr has shape [3], expected at least [4] as source.indptr");
}

TEST(RowListErrors, OffsetsOfAHugeListNeedI64) {
  // Views of memory that does not exist: nothing is touched before the checks are done.
  const TensorView indices(reinterpret_cast<void*>(256), i32, {1 << 20, 4096});
  const TensorView out(reinterpret_cast<void*>(256), i32, {std::int64_t{1} << 32});
  const TensorView indptr(reinterpret_cast<void*>(256), i32, {(1 << 20) + 1});
  EXPECT_EQ(message(BuildRagged{indices, {}, {out, indptr, {}}, -1}),
            "build_ragged: out.indptr is i32, expected i64 for up to 4294967296 entries");
}

// ---- properties ----------------------------------------------------------------------------------------------------

RC_GTEST_PROP(RowListProperties, PackingADenseTranslationGivesTheRaggedOne, ()) {
  const auto queries = *rc::gen::inRange<std::int64_t>(0, 40), width = *rc::gen::inRange<std::int64_t>(1, 70);
  TranslateCase c{"", queries, width, ListForm::dense, true, true};
  c.rows_per_page = *rc::gen::inRange(1, 100);
  const TranslateData dense(c);
  enqueue(dense.arguments, {}, {});
  c.form = ListForm::ragged;
  const TranslateData ragged(c);
  enqueue(ragged.arguments, {}, {});
  const ListTensors packed(ListForm::ragged, queries, width, 2);
  enqueue(BuildRagged{dense.out.indices_view, dense.out.lengths, packed.ragged(), -1}, {}, {});
  RC_ASSERT(values(packed.indices) == values(ragged.out.indices));
  RC_ASSERT(values(packed.indptr) == values(ragged.out.indptr));
}

RC_GTEST_PROP(RowListProperties, ASplitPageSizeNeverChangesARow, ()) {
  // The page division is a multiplication inside: compare with the division.
  const auto page_rows = *rc::gen::inRange<std::uint32_t>(1, 1u << 20);
  const auto row = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 31);
  SlotTable slots;
  slots.set_rows_per_page(page_rows);
  RC_ASSERT(static_cast<std::int64_t>((static_cast<std::uint64_t>(row) * slots.magic) >> slots.shift) ==
            row / page_rows);
}

}  // namespace raggedmla::test
