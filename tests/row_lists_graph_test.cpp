// Row lists in captured graphs: kernel nodes only, as few as promised, and right when replayed over other values.
#include <gtest/gtest.h>

#include "raggedmla/device.hpp"
#include "support/row_list_calls.hpp"
#include "support/row_list_cases.hpp"

namespace raggedmla::test {

namespace {

void reverse(Tensor& tensor) {
  for (std::int64_t i = 0, j = tensor.size() - 1; i < j; ++i, --j) {
    const double value = tensor.flat(i);
    tensor.set_flat(i, tensor.flat(j));
    tensor.set_flat(j, value);
  }
}

// Other values in the same memory, as the next step of a serving loop has them.
void change(BuildData& data) {
  reverse(data.indices);
  reverse(data.lengths);
}
void change(TranslateData& data) {
  reverse(data.topk);
  reverse(data.requests);
  reverse(data.table);
}
void change(RangedData& data) {
  reverse(data.queries.sequence_lengths);
  reverse(data.table);
}
void change(CombineData& data) {
  reverse(data.topk);
  reverse(data.queries.sequence_lengths);
  reverse(data.gathered);
}
void change(CopyData& data) {
  reverse(data.indices);
  for (std::int64_t t = 0; t < data.indptr.size(); ++t) data.indptr.set_flat(t, data.indptr.flat(t) / 2);
}

const auto whole_call = [](const auto& data) { return data.arguments; };

class RowListGraphs : public testing::Test {
 protected:
  void SetUp() override {
    backend_ = list_backends().back();
    if (!present(backend_)) GTEST_SKIP() << "no GPU";
    preload(backend_.device);
  }

  template <class Data, class Case, class Call = decltype(whole_call)>
  void check(const Case& c, int kernels, const Call& call = whole_call) {
    SCOPED_TRACE(c.name);
    Data expected(c), result(c);
    Mirror mirror(backend_.device);
    const auto arguments = on(mirror, call(result));
    const Workspace workspace = mirror.workspace(workspace_bytes(arguments));
    const host::Graph graph(backend_.device, [&](Stream stream) { enqueue(arguments, workspace, stream); });
    EXPECT_EQ(graph.nodes().kernels, kernels);
    EXPECT_EQ(graph.nodes().others, 0);
    for (int replay = 0; replay < 3; ++replay) {
      graph.replay(mirror.owned_stream());
      mirror.finish();
      by_definition(call(expected));
      expect_same(result.out, expected.out);
      change(result);
      change(expected);
      mirror.refresh();
    }
  }

  Backend backend_;
};

}  // namespace

TEST_F(RowListGraphs, BuildRagged) {
  check<BuildData>(BuildCase{"decode", 256, 512}, 1);
  check<BuildData>(BuildCase{"prefill", 8192, 128}, 1);
  check<BuildData>(BuildCase{"no_queries", 0, 128}, 1);
}
TEST_F(RowListGraphs, TranslateTopk) {
  check<TranslateData>(TranslateCase{"dense", 3000, 64, ListForm::dense}, 1);
  check<TranslateData>(TranslateCase{"ragged_1", 1, 512, ListForm::ragged}, 1);
  check<TranslateData>(TranslateCase{"ragged_1024", 1024, 64, ListForm::ragged}, 1);
  check<TranslateData>(TranslateCase{"ragged_5000", 5000, 64, ListForm::ragged}, 1);
}
TEST_F(RowListGraphs, WindowAndCompressedRows) {
  const auto window = [](const RangedData& data) { return data.window; };
  const auto compressed = [](const RangedData& data) { return data.compressed; };
  for (const ListForm form : {ListForm::dense, ListForm::ragged, ListForm::range}) {
    const RangedCase c{.name = "decode", .requests = 64, .most_queries = 3, .form = form, .valid = true};
    check<RangedData>(c, 1, window);
    check<RangedData>(c, 1, compressed);
  }
}
TEST_F(RowListGraphs, Combine) {
  check<CombineData>(CombineCase{"dense", 9, 300, 512, ListForm::dense}, 1);
  check<CombineData>(CombineCase{"ragged", 9, 300, 512, ListForm::ragged}, 1);
}
TEST_F(RowListGraphs, CopyToGraphBuffers) { check<CopyData>(CopyCase{"padded", 200, 256, 77777, 100000}, 1); }

}  // namespace raggedmla::test
