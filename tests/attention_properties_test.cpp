// Properties of attention, on random calls: what must not change a result does not change it.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/attention_case.hpp"
#include "support/query_subset.hpp"

namespace raggedmla::test {

namespace {

using enum Store;
using enum List;

/// The property tests run on the first GPU where there is one, on the CPU otherwise.
Backend backend() {
  const std::vector<Backend> all = attention_backends();
  return present(all[1]) ? all[1] : all[0];
}

AttentionCase random_case() {
  AttentionCase c;
  c.tokens = *rc::gen::inRange<std::int64_t>(1, 6);
  c.heads = *rc::gen::inRange<std::int64_t>(1, 40);
  c.sink = *rc::gen::element(Sink::none, Sink::normal, Sink::infinities);
  c.seed = *rc::gen::inRange<std::uint64_t>(1, 1u << 30);
  SegmentCase s;
  s.store = *rc::gen::element(flat, bf16_pages, fp8_ocp, fp8_fnuz);
  s.list = dense;
  s.length = *rc::gen::inRange<std::int64_t>(1, 150);
  s.rows = 256;
  s.rows_per_page = *rc::gen::element(1, 2, 7, 64);
  s.invalid = *rc::gen::element(0.0, 0.3);
  c.segments = {s};
  return c;
}

std::int32_t* list_of(AttentionData& data) {
  return static_cast<std::int32_t*>(std::get<DenseRows>(data.segments[0].rows).indices.data);
}

void check(AttentionData& data, const Expected& expected, const char* property) {
  run_attention(data.call, backend());
  expect_close(data.call, expected, property);
  RC_ASSERT(!testing::Test::HasFailure());
}

}  // namespace

RC_GTEST_PROP(AttentionProperties, PermutingAListChangesOnlyRounding, ()) {
  const AttentionCase c = random_case();
  AttentionData data(c);
  const Expected expected = reference_of(data.call);
  const std::int64_t K = c.segments[0].length;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t j = K - 1; j > 0; --j)
      std::swap(list_of(data)[t * K + j], list_of(data)[t * K + data.random.integer(0, j)]);
  }
  check(data, expected, "permuted");
}

RC_GTEST_PROP(AttentionProperties, PaddingWithMinusOneChangesNothing, ()) {
  const AttentionCase c = random_case();
  AttentionData data(c);
  const Expected expected = reference_of(data.call);
  const std::int64_t K = c.segments[0].length, padding = *rc::gen::inRange<std::int64_t>(1, 80);
  Tensor& padded = data.keep(Tensor(DataType::i32, {c.tokens, K + padding})).fill(-1);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t j = 0; j < K; ++j) padded.set({t, j + (j * 2 >= K ? padding : 0)}, list_of(data)[t * K + j]);
  }
  data.segments[0].rows = DenseRows{padded, {}};
  check(data, expected, "padded in the middle");
}

RC_GTEST_PROP(AttentionProperties, SplittingAListIntoSegmentsChangesOnlyRounding, ()) {
  const AttentionCase c = random_case();
  AttentionData data(c);
  const Expected expected = reference_of(data.call);
  const std::int64_t K = c.segments[0].length, cut = *rc::gen::inRange<std::int64_t>(0, K + 1);
  TensorView left = std::get<DenseRows>(data.segments[0].rows).indices, right = left;
  left.shape[1] = cut;
  right.shape[1] = K - cut;
  right.data = list_of(data) + cut;
  data.segments = {{data.segments[0].kv, DenseRows{left, {}}}, {data.segments[0].kv, DenseRows{right, {}}}};
  data.call.segments = data.segments;
  check(data, expected, "two segments");
}

RC_GTEST_PROP(AttentionProperties, PartsMergedEqualTheWhole, ()) {
  const AttentionCase c = random_case();
  AttentionData data(c);
  const Expected expected = reference_of(data.call);
  const std::int64_t T = c.tokens, H = c.heads, K = c.segments[0].length, width = v4_row.value_width;
  const std::int64_t cut = *rc::gen::inRange<std::int64_t>(0, K + 1);
  Tensor partial(DataType::f32, {2, T, H, width}), lse(DataType::f32, {2, T, H});
  for (std::int64_t part = 0; part < 2; ++part) {
    TensorView list = std::get<DenseRows>(data.segments[0].rows).indices;
    list.shape[1] = part == 0 ? cut : K - cut;
    list.data = list_of(data) + (part == 0 ? 0 : cut);
    const std::vector<Segment> segments{{data.segments[0].kv, DenseRows{list, {}}}};
    Attention call = data.call;
    call.segments = segments;
    call.sink.reset();
    call.max_logits.reset();
    call.out =
        TensorView(static_cast<float*>(partial.view().data) + part * T * H * width, DataType::f32, {T, H, width});
    call.lse = TensorView(static_cast<float*>(lse.view().data) + part * T * H, DataType::f32, {T, H});
    run_attention(call, backend());
  }
  Mirror mirror(backend().device);
  merge_states(
      {mirror.in(partial), mirror.in(lse), mirror.in(data.call.sink), mirror.out(data.out), mirror.out(data.call.lse)},
      mirror.stream());
  mirror.finish();
  Attention merged = data.call;
  merged.max_logits.reset();
  expect_close(merged, expected, "merged");
  RC_ASSERT(!testing::Test::HasFailure());
}

RC_GTEST_PROP(AttentionProperties, ChunksOfQueriesEqualTheWhole, ()) {
  const AttentionCase c = random_case();
  AttentionData data(c);
  const Expected expected = reference_of(data.call);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    QuerySubset chunk(data.call, {t});
    const auto row = [t](TensorView view) {
      view.data = static_cast<std::uint8_t*>(view.data) +
                  static_cast<std::size_t>(t * view.stride[0]) * element_bytes(view.dtype);
      view.shape[0] = 1;
      return view;
    };
    chunk.call.out = row(data.call.out);
    chunk.call.lse = row(*data.call.lse);
    chunk.call.max_logits = row(*data.call.max_logits);
    run_attention(chunk.call, backend());
  }
  expect_close(data.call, expected, "chunks");
  RC_ASSERT(!testing::Test::HasFailure());
}

RC_GTEST_PROP(AttentionProperties, ScalingTheSinkOnlyMovesTheDenominator, ()) {
  AttentionCase c = random_case();
  c.sink = Sink::none;
  AttentionData data(c);
  Expected expected = reference_of(data.call);
  const double sink_value = static_cast<double>(*rc::gen::inRange(-4, 5));
  Tensor& sink = data.keep(Tensor(DataType::f32, {c.heads})).fill(sink_value);
  data.call.sink = sink;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const double factor = 1 / (1 + std::exp(sink_value - expected.lse.get({t, h})));
      for (std::int64_t i = 0; i < v4_row.value_width; ++i) {
        if (std::isfinite(expected.lse.get({t, h}))) expected.out.set({t, h, i}, expected.out.get({t, h, i}) * factor);
      }
    }
  }
  check(data, expected, "sink");
}

}  // namespace raggedmla::test
