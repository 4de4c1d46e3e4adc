// What goes wrong in such kernels in the field: one test per fault, on every backend present, each with a known answer.
// Faults of the row lists, the cache formats and the packaging stand beside their operators' tests; docs/contract.md
// maps all.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "support/attention_case.hpp"
#include "support/query_subset.hpp"

namespace raggedmla::test {

namespace {

using enum Store;
using enum List;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t width = v4_row.query_width;

class FailureModes : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!present(GetParam())) GTEST_SKIP() << "no GPU";
  }

  /// Does it, or notes that no Hopper kernel takes the call.
  template <class Work>
  void unless_refused(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      if (!is_refusal(GetParam(), error)) throw;
      refused_ = true;
    }
  }
  void run(const Attention& call) {
    unless_refused([&] { run_attention(call, GetParam()); });
  }
  bool refused_ = false;
};

#define RUN_OR_SKIP(call) \
  run(call);              \
  if (refused_) GTEST_SKIP() << "no Hopper kernel takes this call"

/// A call over hand-made rows: T queries that all equal `q`, one head, f32 out.
struct SmallCall {
  SmallCall(std::int64_t tokens, const std::vector<double>& query, Tensor rows_, std::vector<std::vector<double>> lists,
            double scale = 1.0)
      : rows(std::move(rows_)),
        q(DataType::bf16, {tokens, 1, width}),
        out(DataType::f32, {tokens, 1, width}),
        lse(DataType::f32, {tokens, 1}) {
    q.fill(0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::size_t i = 0; i < query.size(); ++i) q.set({t, 0, static_cast<std::int64_t>(i)}, query[i]);
    }
    std::int64_t columns = 0;
    for (const auto& list : lists) columns = std::max(columns, static_cast<std::int64_t>(list.size()));
    indices = Tensor(DataType::i32, {tokens, columns});
    lengths = Tensor(DataType::i32, {tokens});
    indices.fill(0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto& list = lists[static_cast<std::size_t>(t)];
      lengths.set({t}, static_cast<double>(list.size()));
      for (std::size_t j = 0; j < list.size(); ++j) indices.set({t, static_cast<std::int64_t>(j)}, list[j]);
    }
    segments = {{DenseKv{rows}, DenseRows{indices, lengths.view()}}};
    call.q = q;
    call.segments = segments;
    call.scale = static_cast<float>(scale);
    call.out = out;
    call.lse = lse;
    out.fill(std::nan(""));
    lse.fill(std::nan(""));
  }
  void set_sink(double value) {
    sink = Tensor(DataType::f32, {1});
    sink.fill(value);
    call.sink = sink;
  }
  double first(std::int64_t t) const { return out.get({t, 0, 1}); }

  Tensor rows, q, indices, lengths, out, lse, sink;
  std::vector<Segment> segments;
  Attention call;
};

/// Channel 0 carries the logit, channel 1 the value.
Tensor logit_rows(const std::vector<std::pair<double, double>>& rows) {
  std::vector<std::vector<double>> values;
  for (const auto& [logit, value] : rows) values.push_back({logit, value});
  return rows_of(values);
}

}  // namespace

// 1, 2: rows on both sides of 2 GiB, of 4 GiB and of element 2^31, each attended to alone: the output is that row.
TEST_P(FailureModes, RowsBeyondFourGigabytes) {
  const Device device = GetParam().device;
  constexpr std::int64_t flat_rows = (std::int64_t{1} << 22) + 3, page_bytes = 37440, page_count = 114720;
  // A CPU's pool costs what is written to it; nothing else of it is touched.
  host::Memory pool(device, static_cast<std::size_t>(std::max(flat_rows * width * 2, page_bytes * page_count)));
  const TensorView rows(pool.data(), DataType::bf16, {flat_rows, width}, device);
  const PagedKv single{TensorView(pool.data(), DataType::bf16, {flat_rows, 1, width}, device), 1};
  const PagedKv pages{TensorView(pool.data(), DataType::u8, {page_count, page_bytes}, device)};
  struct Pool {
    PagedKv written;
    KvSource read;
    std::vector<double> slots;
  };
  const Pool pools[] = {
      {single, DenseKv{rows}, {0, 0x1p21 - 1, 0x1p21, 0x1p22 - 1, 0x1p22, 0x1p22 + 1, 0x1p22 + 2}},
      {pages, pages, {0, 57357 * 64 + 63, 57358 * 64 + 17, 57359 * 64, 114715 * 64, 114716 * 64 + 63, 114720 * 64 - 1}},
  };
  for (const Pool& c : pools) {
    Tensor slots(DataType::i64, {7}), values(DataType::bf16, {7, width}), q(DataType::bf16, {7, 1, width}),
        out(DataType::f32, {7, 1, width});
    slots.fill_values(c.slots);
    for (std::int64_t n = 0; n < values.size(); ++n) values.set_flat(n, static_cast<double>(n / width + 1));
    q.fill(0);
    Mirror mirror(device);
    TensorView indices = mirror.in(slots);
    quantize_rows({mirror.in(values), indices, c.written}, mirror.stream());
    indices = TensorView(indices.data, DataType::i64, {7, 1}, device);
    const std::vector<Segment> segments{{c.read, DenseRows{indices, {}}}};
    Attention call;
    call.q = mirror.in(q);
    call.segments = segments;
    call.out = mirror.out(out);
    GetParam().choose_kernel(call.schedule);
    unless_refused([&] { attention(call, mirror.workspace(attention_workspace_bytes(call)), mirror.stream()); });
    mirror.finish();
    if (refused_) GTEST_SKIP() << "no Hopper kernel takes this call";
    for (std::int64_t n = 0; n < out.size(); ++n) {
      ASSERT_EQ(out.flat(n), static_cast<double>(n / width + 1))
          << "slot " << c.slots[static_cast<std::size_t>(n / width)];
    }
  }
}

// 3: the same row at a low and a high page gives equal output.
TEST_P(FailureModes, SameRowAtLowAndHighPage) {
  AttentionData data({"", 2, 4, {{fp8_ocp, dense, 1, 64 * 40}}});
  auto& segment = data.segments[0];
  const TensorView pages = std::get<PagedKv>(segment.kv).pages;
  auto* indices = static_cast<std::int32_t*>(std::get<DenseRows>(segment.rows).indices.data);
  auto* bytes = static_cast<std::uint8_t*>(pages.data);
  std::memcpy(bytes + 39 * pages.stride[0], bytes + indices[0] / 64 * pages.stride[0],
              static_cast<std::size_t>(pages.shape[1]));
  indices[1] = 39 * 64 + indices[0] % 64;
  std::memcpy(static_cast<std::uint16_t*>(data.q.view().data) + 4 * width, data.q.view().data, 4 * width * 2);
  RUN_OR_SKIP(data.call);
  for (std::int64_t h = 0; h < 4; ++h) {
    for (std::int64_t i = 0; i < width; ++i) ASSERT_EQ(data.out.get({0, h, i}), data.out.get({1, h, i}));
  }
}

// 4: a page stride of three payloads gives the dense layout's result, bit for bit.
TEST_P(FailureModes, PageStrideLargerThanPayload) {
  AttentionCase packed{"", 5, 16, {{fp8_ocp, ragged, 90, 640}}, Sink::normal};
  AttentionCase slab = packed;
  slab.segments[0].page_multiple = 3;
  AttentionData a(packed), b(slab);
  RUN_OR_SKIP(a.call);
  run(b.call);
  for (std::int64_t n = 0; n < a.out.size(); ++n) ASSERT_EQ(a.out.flat(n), b.out.flat(n));
}

// 5: 70,000 queries; the last row is right.
TEST_P(FailureModes, SeventyThousandQueries) {
  const std::int64_t tokens = 70000;
  AttentionData data({"", 1, 2, {{flat, dense, 3, 64}}});
  Tensor q(DataType::bf16, {tokens, 2, width}), out(DataType::bf16, {tokens, 2, width}),
      indices(DataType::i32, {tokens, 3});
  q.fill(0.25);
  Tensor& rows = data.keep(Tensor(DataType::bf16, {64, width})).fill_normal(data.random);
  for (std::int64_t n = 0; n < indices.size(); ++n) indices.set_flat(n, static_cast<double>(n % 64));
  Attention call = data.call;
  const std::vector<Segment> segments{{DenseKv{rows}, DenseRows{indices, {}}}};
  call.q = q;
  call.segments = segments;
  call.out = out;
  call.lse.reset();
  call.max_logits.reset();
  RUN_OR_SKIP(call);
  expect_close(call, reference_of(call, {tokens - 1}), "last of 70,000");
}

// 7: scratch sized by a product where a sum is meant.
TEST_P(FailureModes, WorkspaceOfLargeBatchStaysSmall) {
  AttentionData data({"", 512, 128, {{fp8_ocp, dense, 8, 64}}});
  Attention call = data.call;
  GetParam().choose_kernel(call.schedule);
  Mirror mirror(GetParam().device);
  unless_refused([&] { EXPECT_LT(attention_workspace_bytes(mirror.attention(call)), std::size_t{512} << 20); });
  if (refused_) GTEST_SKIP() << "no Hopper kernel takes this call";
}

// 8: scratch follows the batch and not the list's capacity.
TEST_P(FailureModes, WorkspaceDoesNotFollowTheCapacity) {
  AttentionData data({"", 64, 64, {{fp8_ocp, dense_lengths, 8, 64}}});
  GetParam().choose_kernel(data.call.schedule);
  Mirror mirror(GetParam().device);
  Attention call = mirror.attention(data.call);
  std::vector<Segment> segments(call.segments.begin(), call.segments.end());
  call.segments = segments;
  const auto bytes_for = [&](std::int64_t columns) {  // only asked for: the columns need not exist
    TensorView& indices = std::get<DenseRows>(segments[0].rows).indices;
    indices.shape[1] = indices.stride[0] = columns;
    return attention_workspace_bytes(call);
  };
  unless_refused([&] { EXPECT_EQ(bytes_for(8192), bytes_for(1 << 20)); });
  if (refused_) GTEST_SKIP() << "no Hopper kernel takes this call";
}

// 10: 64 times -1 and then one valid row: the output is that row.
TEST_P(FailureModes, LeadingInvalidIndices) {
  std::vector<double> list(64, -1);
  list.push_back(1);
  SmallCall c(1, {1}, logit_rows({{5, 7}, {2, 3}}), {list});
  RUN_OR_SKIP(c.call);
  EXPECT_FLOAT_EQ(c.first(0), 3);
  EXPECT_NEAR(c.lse.get({0, 0}), 2, 1e-5);
}

// 11: -1 is not row 0.
TEST_P(FailureModes, MinusOneIsNotRowZero) {
  SmallCall c(3, {1}, logit_rows({{1, 4}, {2, 8}}), {{0, -1}, {0}, {-1}});
  RUN_OR_SKIP(c.call);
  EXPECT_EQ(c.first(0), 4);
  EXPECT_EQ(c.first(1), 4);
  EXPECT_EQ(c.first(2), 0);
  EXPECT_EQ(c.lse.get({2, 0}), -infinity);
}

// 12: duplicates count as often as they stand in the list.
TEST_P(FailureModes, DuplicatesCount) {
  SmallCall c(1, {0}, logit_rows({{0, 0}, {0, 0}, {0, 0}, {0, 3}, {0, 0}, {0, 6}}), {{3, 3, 5}});
  RUN_OR_SKIP(c.call);
  EXPECT_NEAR(c.first(0), 4, 4e-2);
  EXPECT_NEAR(c.lse.get({0, 0}), std::log(3.0), 1e-5);
}

// 14: every number of heads.
TEST_P(FailureModes, EveryHeadCount) {
  for (std::int64_t heads = 1; heads <= 130; ++heads) {
    AttentionData data({"", 1, heads, {{flat, dense, 37, 64}}, Sink::normal});
    const Expected expected = reference_of(data.call);
    run(data.call);
    if (std::exchange(refused_, false)) continue;
    expect_close(data.call, expected, std::to_string(heads) + " heads");
  }
}

// 18: a column slice of a larger tensor gives the contiguous result, bit for bit.
TEST_P(FailureModes, NonContiguousTensors) {
  AttentionCase packed{"", 6, 16, {{flat, dense, 70}, {fp8_ocp, dense, 33}}, Sink::normal};
  AttentionCase strided = packed;
  strided.strided = true;
  AttentionData a(packed), b(strided);
  RUN_OR_SKIP(a.call);
  run(b.call);
  for (std::int64_t n = 0; n < a.out.size(); ++n) ASSERT_EQ(a.out.flat(n), b.out.flat(n));
}

// 20: a segment without rows, in every place.
TEST_P(FailureModes, EachSegmentEmptyInTurn) {
  for (int empty = 0; empty < 3; ++empty) {
    AttentionCase c{"", 3, 16, {{flat, dense, 40}, {fp8_ocp, ragged, 50}, {flat, range_flat, 20}}, Sink::normal};
    c.segments[static_cast<std::size_t>(empty)].length = 0;
    AttentionData data(c);
    const Expected expected = reference_of(data.call);
    RUN_OR_SKIP(data.call);
    expect_close(data.call, expected, "segment " + std::to_string(empty) + " empty");
  }
}

// 21: everything NaN but the selected rows; row 0 NaN and lists full of -1.
TEST_P(FailureModes, UnselectedNanIsInert) {
  Tensor rows(DataType::bf16, {100, width});
  rows.fill(std::nan(""));
  for (std::int64_t i = 0; i < width; ++i) rows.set({42, i}, 0.5);
  SmallCall c(2, {1}, std::move(rows), {{42}, {-1, -1, -1}});
  RUN_OR_SKIP(c.call);
  EXPECT_EQ(c.first(0), 0.5);
  EXPECT_EQ(c.first(1), 0);
}

// 22, 23: empty rows and the sink.
TEST_P(FailureModes, SinkValues) {
  for (const double sink : {2.0, -infinity, infinity}) {
    SmallCall c(2, {1}, logit_rows({{2, 6}}), {{0}, {}});
    c.set_sink(sink);
    RUN_OR_SKIP(c.call);
    EXPECT_NEAR(c.first(0), sink == 2.0 ? 3.0 : (sink < 0 ? 6.0 : 0.0), 1e-5);
    EXPECT_NEAR(c.lse.get({0, 0}), 2, 1e-5);
    EXPECT_EQ(c.first(1), 0);
    EXPECT_EQ(c.lse.get({1, 0}), -infinity);
  }
}

// 24: logits of -1e30 and +80 stay exact; no finite stand-in for -inf beats real logits.
TEST_P(FailureModes, ExtremeLogits) {
  SmallCall c(3, {1}, logit_rows({{-1e30, 5}, {80, 7}, {-1e38, 9}}), {{0}, {0, 1, 2}, {2, -1}});
  RUN_OR_SKIP(c.call);
  EXPECT_EQ(c.first(0), 5);
  EXPECT_NEAR(c.lse.get({0, 0}), -1e30, 1e28);
  EXPECT_EQ(c.first(1), 7);
  EXPECT_NEAR(c.lse.get({1, 0}), 80, 1e-4);
  EXPECT_NEAR(c.first(2), 9, 0.04);
}

// 25: length 1 with 2..32 splits; lengths [1, 8192] with 8 splits (scratch is always NaN-filled).
TEST_P(FailureModes, SplitsOfShortAndLongLists) {
  for (const int splits : {2, 5, 32}) {
    SmallCall c(1, {1}, logit_rows({{1, 4}}), {{0}});
    c.call.schedule.splits = splits;
    RUN_OR_SKIP(c.call);
    EXPECT_EQ(c.first(0), 4);
  }
  AttentionData data({"", 2, 8, {{flat, dense, 8192, 9000}}, Sink::normal});
  std::get<DenseRows>(data.segments[0].rows).lengths =
      data.keep(Tensor(DataType::i32, {2})).fill_values({1, 8192}).view();
  const Expected expected = reference_of(data.call);
  data.call.schedule.splits = 8;
  RUN_OR_SKIP(data.call);
  expect_close(data.call, expected, "lengths [1, 8192]");
}

// 26: lse is natural: lse [1, 3], out [0, 4] merge to 3.5232.
TEST_P(FailureModes, MergeIsNatural) {
  if (GetParam().kernel == Schedule::Kernel::sm90) GTEST_SKIP() << "merging has one GPU kernel";
  Tensor partial(DataType::f32, {2, 1, 1, width}), lse(DataType::f32, {2, 1, 1}), out(DataType::f32, {1, 1, width}),
      merged(DataType::f32, {1, 1});
  partial.fill(0);
  for (std::int64_t i = 0; i < width; ++i) partial.set({1, 0, 0, i}, 4);
  lse.fill_values({1, 3});
  Mirror mirror(GetParam().device);
  merge_states({mirror.in(partial), mirror.in(lse), {}, mirror.out(out), mirror.out(OptionalTensor(merged.view()))},
               mirror.stream());
  mirror.finish();
  EXPECT_NEAR(out.get({0, 0, 7}), 3.5232, 1e-4);
  EXPECT_NEAR(merged.get({0, 0}), 3 + std::log1p(std::exp(-2.0)), 1e-5);
}

// 27: 1, 2 and 4 shards merged, then the sink once: equal.
TEST_P(FailureModes, SinkCountsOnceOverShards) {
  if (GetParam().kernel == Schedule::Kernel::sm90) GTEST_SKIP() << "merging has one GPU kernel";
  AttentionData data({"", 3, 16, {{flat, dense, 128, 512}}, Sink::normal});
  const Expected expected = reference_of(data.call);
  const TensorView indices = std::get<DenseRows>(data.segments[0].rows).indices;
  for (const std::int64_t shards : {1, 2, 4}) {
    Tensor partial(DataType::f32, {shards, 3, 16, width}), lse(DataType::f32, {shards, 3, 16});
    for (std::int64_t s = 0; s < shards; ++s) {
      TensorView part = indices;
      part.shape[1] = 128 / shards;
      part.data = static_cast<std::int32_t*>(indices.data) + s * part.shape[1];
      const std::vector<Segment> segments{{data.segments[0].kv, DenseRows{part, {}}}};
      Attention call = data.call;
      call.segments = segments;
      call.sink.reset();
      call.max_logits.reset();
      call.out =
          TensorView(static_cast<float*>(partial.view().data) + s * 3 * 16 * width, DataType::f32, {3, 16, width});
      call.lse = TensorView(static_cast<float*>(lse.view().data) + s * 3 * 16, DataType::f32, {3, 16});
      run(call);
    }
    Mirror mirror(GetParam().device);
    merge_states({mirror.in(partial), mirror.in(lse), mirror.in(data.call.sink), mirror.out(data.out),
                  mirror.out(data.call.lse)},
                 mirror.stream());
    mirror.finish();
    Attention merged = data.call;
    merged.max_logits.reset();
    expect_close(merged, expected, std::to_string(shards) + " shards");
  }
}

// 27a: a NaN row selected by query 1 only, next to query 2 in the same tile: 2 is exact, 1 is NaN.
TEST_P(FailureModes, NanRowOfATileMate) {
  for (const List list : {dense, range_flat}) {
    const std::int64_t T = 8, N = 64;
    AttentionData data({"", T, 16, {{flat, list, 8, N}}});
    Tensor& rows = data.keep(Tensor(DataType::bf16, {N, width})).fill_normal(data.random);
    Tensor& starts = data.keep(Tensor(DataType::i32, {2})).fill_values({0, static_cast<double>(T)});
    Tensor& base = data.keep(Tensor(DataType::i64, {1})).fill(0);
    Tensor& first = data.keep(Tensor(DataType::i32, {T}));
    Tensor& count = data.keep(Tensor(DataType::i32, {T})).fill(8);
    Tensor& indices = data.keep(Tensor(DataType::i32, {T, 8}));
    for (std::int64_t t = 0; t < T; ++t) {
      first.set({t}, static_cast<double>(t));
      for (std::int64_t j = 0; j < 8; ++j) indices.set({t, j}, static_cast<double>(t + j));
    }
    for (std::int64_t i = 0; i < width; i += 3) rows.set({0, i}, std::nan(""));  // only query 0 selects row 0
    RangeRows range;
    range.first = first;
    range.count = count;
    range.query_start = starts;
    range.row_base = base;
    data.segments[0] = list == dense ? Segment{DenseKv{rows}, DenseRows{indices, {}}} : Segment{DenseKv{rows}, range};
    const Expected expected = reference_of(data.call);
    run(data.call);
    if (refused_) continue;
    EXPECT_TRUE(std::isnan(data.out.get({0, 0, 0})));
    for (std::int64_t t = 1; t < T; ++t) {
      for (std::int64_t i = 0; i < width; ++i) {
        ASSERT_NEAR(data.out.get({t, 5, i}), expected.out.get({t, 5, i}), 3e-2) << "query " << t;
      }
    }
  }
}

// Lists of neighbouring queries over very many rows (16 bytes apart, to save memory), with rows that queries share,
// duplicates, a row 20 times in one list, invalid entries and an empty list.
TEST_P(FailureModes, ListsOverLargeSources) {
  constexpr std::int64_t T = 11, K = 700, N = 150'000;
  Random random(5);
  Tensor memory(DataType::bf16, {1, N * 8 + width});
  memory.fill_normal(random);
  TensorView rows = memory;
  rows.shape = {N, width};
  rows.stride = {8, 1};
  Tensor indices(DataType::i32, {T, K}), lengths(DataType::i32, {T});
  lengths.fill(K);
  lengths.set({3}, 0);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t j = 0; j < K; ++j) {
      double slot = static_cast<double>(random.integer(-2, N + 2));
      if (j % 5 == 1) slot = indices.get({t, j - 1});
      if (t % 4 != 0 && j % 3 == 0) slot = indices.get({t - 1, j});
      if (t == 5 && j % 35 == 0) slot = 77;
      indices.set({t, j}, slot);
    }
  }
  for (const std::int64_t heads : {8, 16, 32}) {
    AttentionData data({"", T, heads, {{flat, dense, 8}}, Sink::normal});
    data.segments[0] = {DenseKv{rows}, DenseRows{indices, lengths.view()}};
    const Expected expected = reference_of(data.call);
    run(data.call);
    if (refused_) GTEST_SKIP() << "no Hopper kernel takes this call";
    expect_close(data.call, expected, std::to_string(heads) + " heads");
  }
}

// 37: a row alone and in a batch: equal bits with batch_invariant.
TEST_P(FailureModes, BatchInvariantBits) {
  AttentionData data({"", 97, 16, {{flat, dense_lengths, 300, 700}, {fp8_ocp, ragged, 128, 512}}, Sink::normal});
  data.call.schedule.batch_invariant = true;
  RUN_OR_SKIP(data.call);
  for (const std::int64_t t : {0, 13, 96}) {
    QuerySubset alone(data.call, {t});
    Tensor out(DataType::bf16, {1, 16, width});
    alone.call.out = out;
    alone.call.lse.reset();
    alone.call.max_logits.reset();
    run(alone.call);
    for (std::int64_t h = 0; h < 16; ++h) {
      for (std::int64_t i = 0; i < width; ++i) ASSERT_EQ(out.get({0, h, i}), data.out.get({t, h, i})) << "query " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, FailureModes, testing::ValuesIn(attention_backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace raggedmla::test
