// Calls over fp8 pages that the Hopper backend computes over rows unpacked ahead: NaN, graphs, scratch. Kinds of lists
// and trouble in them: attention_test.cpp. What is unpacked when: schedule_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "support/attention_case.hpp"

namespace raggedmla::test {

namespace {

using enum Store;
using enum List;

class Unpacked : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!present(GetParam())) GTEST_SKIP() << "no GPU";
    if (GetParam().device.type != DeviceType::cpu) preload(GetParam().device);
  }
};

/// 24 queries of one request, each over 8 rows from its own number on, through a table of pages of 4 fp8 rows.
struct Window {
  Window() : data({"", 24, 16, {{fp8_ocp, range_table, 8, 64, 4}}}) {
    Tensor& starts = data.keep(Tensor(DataType::i32, {2})).fill_values({0, 24});
    Tensor& first = data.keep(Tensor(DataType::i32, {24}));
    for (std::int64_t t = 0; t < 24; ++t) first.set({t}, static_cast<double>(t));
    table = data.keep(Tensor(DataType::i32, {1, 10})).fill_values({9, 3, 15, 0, 7, 2, 11, 5, 1, 4});
    RangeRows range;
    range.first = first;
    range.count = data.keep(Tensor(DataType::i32, {24})).fill(8);
    range.query_start = starts;
    range.block_table = table;
    data.segments[0].rows = range;
    // All rows finite: the case's own lists were others.
    auto& pages = std::get<PagedKv>(data.segments[0].kv).pages;
    for (std::int64_t page = 0; page < 16; ++page) {
      auto* bytes = static_cast<std::uint8_t*>(pages.data) + page * pages.stride[0];
      for (int i = 0; i < 4 * v4_row.data_bytes; ++i) bytes[i] = static_cast<std::uint8_t>((page * 31 + i * 7) % 113);
      for (int i = 0; i < 4 * v4_row.scale_bytes; ++i) bytes[4 * v4_row.data_bytes + i] = 120;
      for (int r = 0; r < 4; ++r) {
        for (int i = 0; i < v4_row.rope_width; ++i) {
          bytes[r * v4_row.data_bytes + v4_row.nope_width + 2 * i + 1] = 0x3E;  // bf16 near 0.15
        }
      }
    }
  }
  AttentionData data;
  TensorView table;
};

}  // namespace

// Row 0 is NaN; query 0 alone selects it.
TEST_P(Unpacked, NanRowOfATileMate) {
  Window window;
  AttentionData& data = window.data;
  auto& pages = std::get<PagedKv>(data.segments[0].kv).pages;
  static_cast<std::uint8_t*>(pages.data)[9 * pages.stride[0] + 4 * v4_row.data_bytes] = 255;  // page 9 is the first
  const Expected expected = reference_of(data.call);
  try {
    run_attention(data.call, GetParam());
  } catch (const Error& error) {
    if (is_refusal(GetParam(), error)) GTEST_SKIP() << error.what();
    throw;
  }
  EXPECT_TRUE(std::isnan(data.out.get({0, 0, 0})));
  expect_close(data.call, expected, "a row of NaN");
}

// Pages come and go, and scratch holds NaN, between replays of one captured call.
TEST_P(Unpacked, ReplaysWithOtherTables) {
  if (GetParam().device.type == DeviceType::cpu) GTEST_SKIP() << "no graphs";
  Window window;
  Mirror mirror(GetParam().device);
  Attention call = mirror.attention(window.data.call);
  GetParam().choose_kernel(call.schedule);
  Workspace workspace;
  try {
    workspace = mirror.workspace(attention_workspace_bytes(call));
  } catch (const Error& error) {
    if (is_refusal(GetParam(), error)) GTEST_SKIP() << error.what();
    throw;
  }
  host::synchronize(GetParam().device);
  const host::Graph graph(GetParam().device, [&](Stream stream) { attention(call, workspace, stream); });
  EXPECT_EQ(graph.nodes().others, 0);
  auto* table = static_cast<std::int32_t*>(window.table.data);
  for (int replay = 0; replay < 4; ++replay) {
    for (int column = 0; column < 10; ++column) {
      table[column] = (column + replay) % 4 == 3 ? -1 - 100 * (replay % 2) : (table[column] + 5 + 16) % 16;
      if (replay == 2 && column == 5) table[column] = 16;  // one beyond the last page
    }
    mirror.refresh();
    mirror.poison_workspaces();
    graph.replay(mirror.owned_stream());
    mirror.finish();
    expect_close(window.data.call, reference_of(window.data.call), "replay " + std::to_string(replay));
  }
}

TEST_P(Unpacked, TooLittleScratchIsAnError) {
  Window window;
  Mirror mirror(GetParam().device);
  Attention call = mirror.attention(window.data.call);
  GetParam().choose_kernel(call.schedule);
  std::size_t bytes = 0;
  try {
    bytes = attention_workspace_bytes(call);
  } catch (const Error& error) {
    if (is_refusal(GetParam(), error)) GTEST_SKIP() << error.what();
    throw;
  }
  if (bytes == 0) GTEST_SKIP() << "needs no scratch";
  Workspace workspace = mirror.workspace(bytes);
  workspace.bytes = bytes - 1;
  EXPECT_THROW(attention(call, workspace, mirror.stream()), Error);
}

INSTANTIATE_TEST_SUITE_P(, Unpacked, testing::ValuesIn(attention_backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace raggedmla::test
