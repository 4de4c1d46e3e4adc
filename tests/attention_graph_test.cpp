// Captured attention: kernel nodes only, replays with other values, padded rows, scratch full of NaN. GPU only.
#include <gtest/gtest.h>

#include <memory>

#include "support/attention_case.hpp"

namespace raggedmla::test {

namespace {

using enum Store;
using enum List;

class AttentionGraph : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!present(GetParam())) GTEST_SKIP() << "no GPU";
    preload(GetParam().device);
  }
};

/// A captured call whose lists and lengths the test changes between replays.
struct Captured {
  Captured(AttentionData& data, const Backend& backend) : mirror(backend.device) {
    Attention arguments = mirror.attention(data.call);
    backend.choose_kernel(arguments.schedule);
    workspace = mirror.workspace(attention_workspace_bytes(arguments));
    host::synchronize(backend.device);
    graph =
        std::make_unique<host::Graph>(backend.device, [&](Stream stream) { attention(arguments, workspace, stream); });
  }
  void replay() {
    mirror.refresh();
    graph->replay(mirror.owned_stream());
    mirror.finish();
  }
  Mirror mirror;
  Workspace workspace;
  std::unique_ptr<host::Graph> graph;
};

std::unique_ptr<Captured> capture(AttentionData& data, const Backend& backend) {
  try {
    return std::make_unique<Captured>(data, backend);
  } catch (const Error& error) {
    if (is_refusal(backend, error)) return nullptr;
    throw;
  }
}

#define SKIP_IF_REFUSED(captured) \
  if (!(captured)) GTEST_SKIP() << "no Hopper kernel takes this call"

}  // namespace

TEST_P(AttentionGraph, HoldsKernelNodesOnly) {
  const AttentionCase cases[] = {{"", 4, 16, {{flat, dense_lengths, 700, 1500}}, Sink::normal},
                                 {"", 3, 64, {{fp8_ocp, ragged, 128, 512}, {fp8_ocp, dense_lengths, 512, 900}}},
                                 {"", 33, 16, {{flat, range_flat, 128, 600}, {flat, range_flat, 40, 300}}}};
  int captures = 0;
  for (const AttentionCase& c : cases) {
    AttentionData data(c);
    const auto captured = capture(data, GetParam());
    if (!captured) continue;
    ++captures;
    EXPECT_GE(captured->graph->nodes().kernels, 1);
    EXPECT_EQ(captured->graph->nodes().others, 0);
  }
  if (captures == 0) GTEST_SKIP() << "no Hopper kernel takes these calls";
}

TEST_P(AttentionGraph, ReplaysWithOtherListsEqualEagerCalls) {
  for (const List list : {dense_lengths, ragged, range_table}) {
    AttentionCase c{"", 9, 16, {{fp8_ocp, list, 300, 900}, {flat, dense_lengths, 64, 300}}, Sink::normal};
    AttentionData data(c);
    const auto captured = capture(data, GetParam());
    SKIP_IF_REFUSED(captured);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      // Another call of the same shapes: its values take the place of the captured tensors' values.
      c.seed = seed;
      AttentionData other(c);
      data.take_values(other);
      captured->replay();
      const Expected expected = reference_of(data.call);
      expect_close(data.call, expected, "replay " + std::to_string(seed));
    }
  }
}

// Failure mode 32: lists of width W in rows of stride 8192; lengths up to 3 W are clamped to W.
TEST_P(AttentionGraph, LengthsBeyondTheWidthAreClamped) {
  AttentionData data({"", 5, 16, {{flat, dense, 64, 300}}, Sink::normal});
  const TensorView narrow = std::get<DenseRows>(data.segments[0].rows).indices;
  Tensor& wide = data.keep(Tensor(DataType::i32, {5, 64}, {8192, 1}));
  for (std::int64_t t = 0; t < 5; ++t) {
    for (std::int64_t j = 0; j < 64; ++j) wide.set({t, j}, static_cast<const std::int32_t*>(narrow.data)[t * 64 + j]);
  }
  Tensor& lengths = data.keep(Tensor(DataType::i32, {5})).fill(3);
  data.segments[0].rows = DenseRows{wide, lengths.view()};
  const auto captured = capture(data, GetParam());
  SKIP_IF_REFUSED(captured);
  lengths.fill_values({192, 64, 65, 0, -4});
  captured->replay();
  expect_close(data.call, reference_of(data.call), "lengths [192, 64, 65, 0, -4] of width 64");
}

// Failure mode 33: 6 real rows in an 8-row graph over stale indices; then stale lengths over indices of -1.
TEST_P(AttentionGraph, PaddedRowsAreZero) {
  AttentionData data({"", 8, 16, {{fp8_ocp, dense, 64, 300}}, Sink::normal});
  Tensor& lengths = data.keep(Tensor(DataType::i32, {8})).fill(64);
  auto& rows = std::get<DenseRows>(data.segments[0].rows);
  rows.lengths = lengths.view();
  const auto captured = capture(data, GetParam());
  SKIP_IF_REFUSED(captured);
  lengths.set({6}, 0);
  lengths.set({7}, 0);
  captured->replay();
  expect_close(data.call, reference_of(data.call), "lengths 0");
  EXPECT_EQ(data.out.get({7, 3, 9}), 0);
  lengths.fill(64);
  for (std::int64_t j = 0; j < 64; ++j) {
    for (std::int64_t t = 6; t < 8; ++t)
      static_cast<std::int32_t*>(rows.indices.data)[t * rows.indices.stride[0] + j] = -1;
  }
  captured->replay();
  expect_close(data.call, reference_of(data.call), "indices -1");
  EXPECT_EQ(data.out.get({7, 3, 9}), 0);
}

// Failure mode 35: scratch full of NaN between replays (all but the counter area).
TEST_P(AttentionGraph, ScratchMayHoldNan) {
  AttentionData data({"", 2, 16, {{fp8_ocp, dense, 900, 1500}}, Sink::normal, false, false, false, 6});
  const auto captured = capture(data, GetParam());
  SKIP_IF_REFUSED(captured);
  const Expected expected = reference_of(data.call);
  for (int i = 0; i < 2; ++i) {
    captured->mirror.poison_workspaces();
    captured->replay();
    expect_close(data.call, expected, "poisoned scratch");
  }
}

INSTANTIATE_TEST_SUITE_P(, AttentionGraph, testing::ValuesIn([] {
                           std::vector<Backend> gpus;
                           for (const Backend& backend : attention_backends()) {
                             if (backend.device.type != DeviceType::cpu) gpus.push_back(backend);
                           }
                           return gpus;
                         }()),
                         [](const auto& test) { return test.param.name; });

}  // namespace raggedmla::test
