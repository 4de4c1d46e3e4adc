// What attention and merge_states refuse, and with which words: one line of the tables is one wrong argument.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "host/device_memory.hpp"
#include "support/attention_case.hpp"
#include "support/error_message.hpp"

namespace raggedmla::test {

namespace {

using enum Store;
using enum List;

/// A right call of every kind of segment, to be made wrong.
struct Call : AttentionData {
  Call()
      : AttentionData({"",
                       4,
                       6,
                       {{flat, dense_lengths, 30, 100},
                        {fp8_ocp, ragged, 20, 128},
                        {bf16_pages, range_table, 10, 128, 16},
                        {flat, range_flat, 10, 100}},
                       Sink::normal,
                       false,
                       true}) {}

  TensorView& rows(int s) { return std::get<DenseKv>(segments[static_cast<std::size_t>(s)].kv).rows; }
  PagedKv& paged(int s) { return std::get<PagedKv>(segments[static_cast<std::size_t>(s)].kv); }
  template <class Rows>
  Rows& list(int s) {
    return std::get<Rows>(segments[static_cast<std::size_t>(s)].rows);
  }
};

struct WrongArgument {
  const char* name;
  std::function<void(Call&)> spoil;
  const char* message;
};

void unalign(TensorView& view) { view.data = static_cast<char*>(view.data) + 2; }

const std::vector<WrongArgument>& wrong_arguments() {
  static const std::vector<WrongArgument> table{
      {"q_type", [](Call& c) { c.call.q.dtype = DataType::f32; }, "q is f32, expected bf16"},
      {"q_width", [](Call& c) { c.call.q.shape[2] = 500; }, "q has shape [4, 6, 500], expected [*, *, 512]"},
      {"q_rank", [](Call& c) { c.call.q.rank = 2; }, "q has shape [4, 6], expected [*, *, 512]"},
      {"q_negative", [](Call& c) { c.call.q.shape[0] = -4; }, "q has shape [-4, 6, 512], expected [*, *, 512]"},
      {"q_null", [](Call& c) { c.call.q.data = nullptr; }, "q has a null pointer, expected [4, 6, 512]"},
      {"q_channels", [](Call& c) { c.call.q.stride[2] = 2; }, "q has stride 2 in its last dimension, expected 1"},
      {"q_address", [](Call& c) { unalign(c.call.q); },
       "q starts at an unaligned address, expected a multiple of 16 bytes"},
      {"q_head_stride", [](Call& c) { c.call.q.stride[1] = 515; },
       "q has a stride of 1030 bytes in dimension 1, expected a multiple of 16 bytes"},
      {"q_huge", [](Call& c) { c.call.q.stride[0] = INT64_MAX / 2; },
       "q is too large: sizes and strides overflow 63 bits"},
      {"q_backwards", [](Call& c) { c.call.q.stride[1] = -512; }, "q has a negative stride (dimension 1)"},

      {"no_segments", [](Call& c) { c.call.segments = {}; }, "segments has 0 entries, expected 1 to 4"},
      {"five_segments",
       [](Call& c) {
         c.segments.push_back(c.segments[0]);
         c.call.segments = c.segments;
       },
       "segments has 5 entries, expected 1 to 4"},
      {"rows_type", [](Call& c) { c.rows(0).dtype = DataType::u8; }, "segments[0].kv.rows is u8, expected bf16"},
      {"rows_shape", [](Call& c) { c.rows(0).shape[1] = 576; },
       "segments[0].kv.rows has shape [100, 576], expected [*, 512]"},
      {"rows_pitch", [](Call& c) { c.rows(0).stride[0] = 513; },
       "segments[0].kv.rows has a stride of 1026 bytes in dimension 0, expected a multiple of 16 bytes"},
      {"rows_device",
       [](Call& c) {
         c.rows(3).device = {DeviceType::cuda, 1};
       },
       "segments[3].kv.rows is on cuda:1, expected cpu as q"},
      {"pages_type", [](Call& c) { c.paged(1).pages.dtype = DataType::f32; },
       "segments[1].kv.pages is f32, expected u8 (fp8_ds_mla) or bf16"},
      {"pages_small", [](Call& c) { c.paged(1).pages.shape[1] = 37375; },
       "segments[1].kv.pages has shape [2, 37375], expected at least 37376 bytes a page (64 rows of 584)"},
      {"pages_stride", [](Call& c) { c.paged(1).pages.stride[0] = 37380; },
       "segments[1].kv.pages has a stride of 37380 bytes in dimension 0, expected a multiple of 16 bytes"},
      {"pages_overlap", [](Call& c) { c.paged(1).pages.stride[0] = 576; },
       "segments[1].kv.pages has a page stride of 576 bytes, expected at least 37376"},
      {"pages_rows",
       [](Call& c) {
         c.paged(1).pages = TensorView(c.paged(1).pages.data, DataType::u8, {2, 32, 584});
       },
       "segments[1].kv.pages has shape [2, 32, 584], expected [*, 64, 584]"},
      {"pages_no_rows", [](Call& c) { c.paged(2).rows_per_page = 0; },
       "segments[2].kv.rows_per_page is 0, expected at least 1"},
      {"bf16_pages_rows", [](Call& c) { c.paged(2).rows_per_page = 8; },
       "segments[2].kv.pages has shape [8, 16, 512], expected [*, 8, 512]"},

      {"dense_type", [](Call& c) { c.list<DenseRows>(0).indices.dtype = DataType::f32; },
       "segments[0].rows.indices is f32, expected i32 or i64"},
      {"dense_tokens", [](Call& c) { c.list<DenseRows>(0).indices.shape[0] = 3; },
       "segments[0].rows.indices has shape [3, 30], expected [4, *]"},
      {"dense_lengths", [](Call& c) { c.list<DenseRows>(0).lengths->shape[0] = 5; },
       "segments[0].rows.lengths has shape [5], expected [4]"},
      {"ragged_indptr", [](Call& c) { c.list<RaggedRows>(1).indptr.shape[0] = 4; },
       "segments[1].rows.indptr has shape [4], expected [5]"},
      {"ragged_indices", [](Call& c) { c.list<RaggedRows>(1).indices.rank = 2; },
       "segments[1].rows.indices has shape [81, 0], expected [*]"},
      {"range_first", [](Call& c) { c.list<RangeRows>(2).first.shape[0] = 1; },
       "segments[2].rows.first has shape [1], expected [4]"},
      {"range_count", [](Call& c) { c.list<RangeRows>(2).count.dtype = DataType::bf16; },
       "segments[2].rows.count is bf16, expected i32 or i64"},
      {"range_starts", [](Call& c) { c.list<RangeRows>(2).query_start.shape[0] = 0; },
       "segments[2].rows.query_start has shape [0], expected [requests + 1]"},
      {"range_table", [](Call& c) { c.list<RangeRows>(2).block_table->shape[0] += 1; },
       "segments[2].rows.block_table has shape"},
      {"range_neither", [](Call& c) { c.list<RangeRows>(2).block_table.reset(); },
       "segments[2].rows.block_table and row_base are both absent, expected exactly one of them"},
      {"range_both", [](Call& c) { c.list<RangeRows>(3).block_table = c.list<RangeRows>(2).block_table; },
       "segments[3].rows.block_table and row_base are both given, expected exactly one of them"},
      {"range_base", [](Call& c) { c.list<RangeRows>(3).row_base->rank = 0; },
       "segments[3].rows.row_base has shape [], expected ["},
      {"range_ring", [](Call& c) { c.list<RangeRows>(3).ring_rows = -1; },
       "segments[3].rows.ring_rows is -1, expected 0 to 2^31"},
      {"range_hint", [](Call& c) { c.list<RangeRows>(3).max_queries_per_request = -2; },
       "segments[3].rows.max_queries_per_request is -2, expected 0 (unknown) or more"},

      {"sink_type", [](Call& c) { c.call.sink->dtype = DataType::bf16; }, "sink is bf16, expected f32"},
      {"sink_short", [](Call& c) { c.call.sink->shape[0] = 5; },
       "sink has shape [5], expected at least [6], one logit per head"},
      {"scale_nan", [](Call& c) { c.call.scale = std::nanf(""); }, "scale is nan, expected a finite number"},
      {"out_type", [](Call& c) { c.call.out.dtype = DataType::u8; }, "out is u8, expected bf16 or f32"},
      {"out_shape", [](Call& c) { c.call.out.shape[1] = 7; }, "out has shape [4, 7, 512], expected [4, 6, 512]"},
      {"out_overlap", [](Call& c) { c.call.out.stride[0] = 0; }, "out is an output with stride 0 in dimension 0"},
      {"out_channels", [](Call& c) { c.call.out.stride[2] = 2; }, "out has stride 2 in its last dimension, expected 1"},
      {"lse_shape", [](Call& c) { c.call.lse->shape[0] = 5; }, "lse has shape [5, 6], expected [4, 6]"},
      {"lse_type", [](Call& c) { c.call.lse->dtype = DataType::bf16; }, "lse is bf16, expected f32"},
      {"max_logits_shape", [](Call& c) { c.call.max_logits->shape[1] = 1; },
       "max_logits has shape [4, 1], expected [4, 6]"},
      {"cos_sin_absent", [](Call& c) { c.call.epilogue.cos_sin = {}; },
       "epilogue.cos_sin has shape [], expected [*, 64]"},
      {"cos_sin_type", [](Call& c) { c.call.epilogue.cos_sin.dtype = DataType::bf16; },
       "epilogue.cos_sin is bf16, expected f32"},
      {"positions_shape", [](Call& c) { c.call.epilogue.positions.shape[0] = 3; },
       "epilogue.positions has shape [3], expected [4]"},
      {"splits", [](Call& c) { c.call.schedule.splits = -1; }, "schedule.splits is -1, expected 0 (chosen) or more"},
      {"kernel", [](Call& c) { c.call.schedule.kernel = Schedule::Kernel::sm90; },
       "schedule.kernel is sm90, expected automatic, cpu or reference for CPU tensors"},
  };
  return table;
}

class WrongArguments : public testing::TestWithParam<WrongArgument> {};

}  // namespace

TEST_P(WrongArguments, AreNamed) {
  Call c;
  GetParam().spoil(c);
  const std::string expected = std::string("attention: ") + GetParam().message;
  const std::string asked = message_of([&] { attention_workspace_bytes(c.call); });
  EXPECT_EQ(asked.substr(0, expected.size()), expected);
  EXPECT_EQ(message_of([&] { attention(c.call); }), asked);
  // Nothing was written: out still holds what the test put there.
  EXPECT_TRUE(std::isnan(c.out.get({0, 0, 0})));
}

INSTANTIATE_TEST_SUITE_P(Attention, WrongArguments, testing::ValuesIn(wrong_arguments()),
                         [](const auto& test) { return test.param.name; });

TEST(AttentionApi, TheUnspoiltCallIsRight) {
  Call c;
  const Expected expected = reference_of(c.call);
  run_attention(c.call, {"cpu", {}});
  expect_close(c.call, expected, "unspoilt");
}

TEST(AttentionApi, WorkspaceMustBeLargeAlignedAndOnTheDevice) {
  Call c;
  const std::size_t bytes = attention_workspace_bytes(c.call);
  ASSERT_GT(bytes, 0u);
  host::Memory memory({}, bytes + 256);
  char* data = static_cast<char*>(memory.data());
  const std::string needed = std::to_string(bytes);
  EXPECT_EQ(message_of([&] { attention(c.call); }), "attention: workspace has 0 bytes, expected at least " + needed);
  EXPECT_EQ(message_of([&] {
              attention(c.call, {data, bytes - 1, {}});
            }),
            "attention: workspace has " + std::to_string(bytes - 1) + " bytes, expected at least " + needed);
  EXPECT_EQ(message_of([&] {
              attention(c.call, {data + 16, bytes, {}});
            }),
            "attention: workspace is not aligned to 256 bytes");
  EXPECT_EQ(message_of([&] {
              attention(c.call, {data, bytes, {DeviceType::hip, 0}});
            }),
            "attention: workspace is on hip:0, expected cpu");
}

TEST(AttentionApi, PagesAsEnginesDeclareThem) {
  AttentionData data({"", 5, 16, {{fp8_ocp, dense, 70, 320, 64, false, 0.1, 3}}});
  const Expected expected = reference_of(data.call);
  TensorView& pages = std::get<PagedKv>(data.segments[0].kv).pages;
  pages = TensorView(pages.data, DataType::u8, {pages.shape[0], 64, 584}, {pages.stride[0], 584, 1});
  run_attention(data.call, {"cpu", {}});
  expect_close(data.call, expected, "[P, R, 584]");
}

TEST(AttentionApi, TableWithoutColumnsAndSourceWithoutRows) {
  Call c;
  RangeRows& range = c.list<RangeRows>(2);
  range.block_table = TensorView(nullptr, DataType::i32, {range.block_table->shape[0], 0});
  c.rows(3) = TensorView(nullptr, DataType::bf16, {0, 512});
  const Expected expected = reference_of(c.call);
  run_attention(c.call, {"cpu", {}});
  expect_close(c.call, expected, "nothing to read");
}

namespace {

struct MergeCall {
  Tensor partial{DataType::f32, {3, 2, 4, 512}}, partial_lse{DataType::f32, {3, 2, 4}}, sink{DataType::f32, {4}},
      out{DataType::bf16, {2, 4, 512}}, lse{DataType::f32, {2, 4}};
  MergeStates call;
  MergeCall() {
    Random random(5);
    partial.fill_normal(random);
    partial_lse.fill_normal(random);
    sink.fill_normal(random);
    call.partial_out = partial;
    call.partial_lse = partial_lse;
    call.sink = sink;
    call.out = out;
    call.lse = lse;
  }
};

struct WrongMerge {
  const char* name;
  std::function<void(MergeStates&)> spoil;
  const char* message;
};

class WrongMerges : public testing::TestWithParam<WrongMerge> {};

}  // namespace

TEST_P(WrongMerges, AreNamed) {
  MergeCall c;
  GetParam().spoil(c.call);
  EXPECT_EQ(message_of([&] { merge_states(c.call); }), std::string("merge_states: ") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Merge, WrongMerges,
    testing::Values(WrongMerge{"partial_type", [](MergeStates& m) { m.partial_out.dtype = DataType::i32; },
                               "partial_out is i32, expected bf16 or f32"},
                    WrongMerge{"partial_shape", [](MergeStates& m) { m.partial_out.shape[3] = 64; },
                               "partial_out has shape [3, 2, 4, 64], expected [*, *, *, 512]"},
                    WrongMerge{"partial_lse", [](MergeStates& m) { m.partial_lse.shape[0] = 2; },
                               "partial_lse has shape [2, 2, 4], expected [3, 2, 4]"},
                    WrongMerge{"sink", [](MergeStates& m) { m.sink->shape[0] = 3; },
                               "sink has shape [3], expected at least [4], one logit per head"},
                    WrongMerge{"out", [](MergeStates& m) { m.out.shape[0] = 3; },
                               "out has shape [3, 4, 512], expected [2, 4, 512]"},
                    WrongMerge{"lse",
                               [](MergeStates& m) {
                                 m.lse->device = {DeviceType::cuda, 0};
                               },
                               "lse is on cuda:0, expected cpu as partial_out"},
                    WrongMerge{"kernel", [](MergeStates& m) { m.kernel = Schedule::Kernel::portable; },
                               "kernel is portable, expected automatic, cpu or reference for CPU tensors"}),
    [](const auto& test) { return test.param.name; });

TEST(AttentionApi, MergeOfNothingSucceeds) {
  MergeCall c;
  c.call.partial_out.shape[0] = 0;
  c.call.partial_lse.shape[0] = 0;
  merge_states(c.call);
  EXPECT_EQ(c.out.get({1, 3, 511}), 0);
  EXPECT_EQ(c.lse.get({1, 3}), -std::numeric_limits<double>::infinity());
  c.call.partial_out.shape[1] = c.call.partial_lse.shape[1] = c.call.out.shape[0] = c.call.lse->shape[0] = 0;
  EXPECT_NO_THROW(merge_states(c.call));
}

}  // namespace raggedmla::test
