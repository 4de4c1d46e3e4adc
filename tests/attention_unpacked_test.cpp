// Calls over fp8 pages that the Hopper backend computes over rows unpacked ahead: every kind of list and of trouble in
// it, on every backend present. What is unpacked when: schedule_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "support/attention_case.hpp"

namespace raggedmla::test {

namespace {

using enum Store;
using enum List;

const std::vector<AttentionCase>& cases() {
  static const std::vector<AttentionCase> table{
      // name, T, H, segments {store, list, K, rows, rows per page, wide, invalid}, sink, f32, rope, strided
      {"tables", 41, 16, {{fp8_ocp, range_table, 130, 600}, {fp8_fnuz, range_table, 60, 90, 2}}, Sink::normal},
      {"missing_pages", 45, 16, {{fp8_ocp, range_table, 200, 640, 16, false, 0.3}}, Sink::infinities},
      {"missing_small_pages", 38, 8, {{fp8_fnuz, range_table, 90, 120, 2, true, 0.3}}},
      {"no_page", 33, 16, {{fp8_ocp, range_table, 80, 200, 64, false, 1.0}}, Sink::normal},
      {"odd_pages", 37, 12, {{fp8_ocp, range_table, 97, 200, 7, true, 0.1}}, Sink::normal},
      {"ring", 40, 16, {{fp8_ocp, range_ring, 100, 700, 16, false, 0.1}, {fp8_ocp, range_table, 30, 90, 2}}},
      {"flat_range", 35, 16, {{fp8_ocp, range_flat, 70, 300}, {fp8_fnuz, range_flat, 40, 200, 5}}, Sink::normal},
      {"lists", 20, 16, {{fp8_ocp, ragged, 90, 300, 64, true, 0.3}, {fp8_fnuz, dense_lengths, 70, 200, 7, false, 0.3}}},
      {"mixed", 37, 16, {{flat, range_flat, 128, 600}, {fp8_ocp, range_table, 60, 90, 2, false, 0.2}}, Sink::normal},
      {"mixed_lists", 21, 8, {{bf16_pages, ragged, 65, 200}, {fp8_fnuz, dense, 33, 100}, {flat, dense, 9}}},
      {"empty_source", 9, 16, {{fp8_ocp, dense, 0, 0}, {fp8_ocp, range_table, 60, 90}}, Sink::normal},
      {"strided", 36, 16, {{fp8_ocp, range_table, 90, 300, 64, true, 0.2, 3}}, Sink::normal, true, true, true},
      // More than 32 heads fill a tile with few queries: enough of these that kernel `automatic` unpacks.
      {"many", 160, 33, {{fp8_ocp, range_table, 40, 200, 16, false, 0.1}, {fp8_fnuz, ragged, 25, 100}}, Sink::normal},
      // More than 64 heads: several calls of query tiles.
      {"head_groups",
       9,
       96,
       {{flat, dense_lengths, 70}, {fp8_ocp, range_table, 60, 90}},
       Sink::normal,
       true,
       true,
       true},
  };
  return table;
}

class UnpackedTable : public testing::TestWithParam<std::tuple<Backend, std::size_t>> {};

class Unpacked : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!present(GetParam())) GTEST_SKIP() << "no GPU";
    if (GetParam().device.type != DeviceType::cpu) preload(GetParam().device);
  }
};

bool is_refusal(const Backend& backend, const Error& error) {
  return backend.kernel == Schedule::Kernel::sm90 &&
         std::string(error.what()).find("no Hopper kernel") != std::string::npos;
}

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

TEST_P(UnpackedTable, EqualsReference) {
  const auto& [backend, index] = GetParam();
  if (!present(backend)) GTEST_SKIP() << "no GPU";
  const AttentionCase& c = cases()[index];
  AttentionData data(c);
  const Expected expected = reference_of(data.call);
  try {
    run_attention(data.call, backend);
  } catch (const Error& error) {
    if (is_refusal(backend, error)) GTEST_SKIP() << error.what();
    throw;
  }
  expect_close(data.call, expected, c.name);
}

INSTANTIATE_TEST_SUITE_P(Cases, UnpackedTable,
                         testing::Combine(testing::ValuesIn(attention_backends()),
                                          testing::Range<std::size_t>(0, cases().size())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + cases()[std::get<1>(test.param)].name;
                         });

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
