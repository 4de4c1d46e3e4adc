// How GPU attention calls are cut: a pure function, checked without a GPU.
#include <gtest/gtest.h>

#include "attention/schedule.hpp"

namespace raggedmla::test {

namespace {

using gpu::AttentionPlan;
using gpu::DeviceLimits;
using gpu::TileShape;

constexpr DeviceLimits h200{132, 32, 232448, 233472, 9};
constexpr DeviceLimits a100{108, 32, 166912, 167936, 8};
constexpr DeviceLimits l40{142, 32, 101376, 102400, 8};
constexpr DeviceLimits mi300{304, 64, 65536, 65536, 9};

AttentionProblem call(std::int64_t tokens, std::int64_t heads, std::int64_t list_length) {
  AttentionProblem problem;
  problem.tokens = tokens;
  problem.heads = heads;
  problem.segment_count = 1;
  problem.segments[0].list.kind = ListKind::dense;
  problem.segments[0].list.capacity = list_length;
  problem.segments[0].store.rows = 1 << 20;
  return problem;
}

AttentionPlan plan(std::int64_t tokens, std::int64_t heads, std::int64_t list_length, const DeviceLimits& device = h200,
                   const Schedule& schedule = {}) {
  return gpu::plan_attention(call(tokens, heads, list_length), schedule, device);
}

}  // namespace

TEST(Schedule, TilesFitEveryDevice) {
  for (const DeviceLimits& device : {h200, a100, l40, mi300}) {
    for (std::int64_t heads = 1; heads <= 200; ++heads) {
      const AttentionPlan p = plan(4096, heads, 640, device);
      const int bytes = gpu::layout_of(p.shape).bytes;
      EXPECT_LE(bytes, device.shared_bytes_per_block) << heads;
      EXPECT_LE(bytes + (device.lanes == 32 ? 1024 : 0), device.shared_bytes_per_multiprocessor) << heads;
      EXPECT_GE(p.head_groups * p.shape.heads, heads);
      EXPECT_LT((p.head_groups - 1) * p.shape.heads, heads);
      EXPECT_EQ(p.shape.columns, device.lanes == 32 ? 8 : 16);
    }
  }
}

// A workgroup of CDNA has 64 KiB. tests/hip_inspect.py sees to it that the code objects take at most 2 KiB themselves.
TEST(Schedule, CdnaTilesFitAWorkgroup) {
  for (const TileShape& tile : gpu::cdna_tiles) {
    EXPECT_LE(gpu::layout_of(tile).bytes, 62 << 10) << tile.heads << " heads, " << tile.rows << " rows";
  }
}

TEST(Schedule, SmallHeadCountsAreNotPaddedTo64) {
  EXPECT_EQ(plan(1, 8, 640).shape.heads, 16);
  EXPECT_EQ(plan(1, 16, 640).shape.heads, 16);
  EXPECT_EQ(plan(1, 17, 640).shape.heads, 32);
  EXPECT_EQ(plan(1, 64, 640).shape.heads, 64);
  EXPECT_EQ(plan(1, 128, 640).head_groups, 2);
}

TEST(Schedule, LargeBatchesAreNotSplitAndNeedNoScratch) {
  for (const std::int64_t heads : {8, 16, 64, 128}) {
    const AttentionPlan p = plan(4096, heads, 1152);
    EXPECT_EQ(p.splits, 1);
    EXPECT_EQ(p.scratch_bytes, 0u);
    EXPECT_EQ(p.blocks, 4096 * p.head_groups);
  }
}

TEST(Schedule, OneQueryIsSplitAmongManyBlocks) {
  EXPECT_GE(plan(1, 64, 640).splits, 5);
  EXPECT_GE(plan(1, 16, 8320).splits, 32);
  EXPECT_EQ(plan(1, 64, 64).splits, 1);  // never shorter than the shortest part
}

TEST(Schedule, ScratchFollowsTheBatchNotTheCapacity) {
  EXPECT_LE(plan(512, 128, 1 << 20).scratch_bytes, std::size_t{512} << 20);
  EXPECT_LE(plan(1, 128, 1 << 20).scratch_bytes, std::size_t{64} << 20);
  EXPECT_EQ(plan(64, 16, 8192).splits, plan(64, 16, 1 << 20).splits);
}

TEST(Schedule, QueriesShareTheBufferOfRaggedLists) {
  for (const std::int64_t tokens : {1, 16, 64, 256}) {
    for (const std::int64_t heads : {8, 16, 64, 128}) {
      AttentionProblem ragged = call(tokens, heads, 640 * tokens);
      ragged.segments[0].list.kind = ListKind::ragged;
      EXPECT_EQ(gpu::plan_attention(ragged, {}, h200).splits, plan(tokens, heads, 640).splits)
          << tokens << ", " << heads;
    }
  }
}

TEST(Schedule, BatchInvariantNeverDependsOnTheBatch) {
  Schedule schedule;
  schedule.batch_invariant = true;
  for (const std::int64_t tokens : {1, 2, 97, 4096}) {
    const AttentionPlan p = plan(tokens, 16, 1152, h200, schedule);
    EXPECT_EQ(p.splits, plan(1, 16, 1152, h200, schedule).splits);
    EXPECT_EQ(p.tile, plan(1, 16, 1152, h200, schedule).tile);
  }
}

TEST(Schedule, NoTokensAndNoHeadsLaunchNothing) {
  EXPECT_EQ(plan(0, 16, 640).blocks, 0);
  EXPECT_EQ(plan(4, 0, 640).blocks, 0);
}

TEST(Schedule, PartsCoverTheListAndAreWholeTiles) {
  for (const std::int64_t total : {0, 1, 63, 64, 65, 640, 1153, 8320}) {
    for (const std::int64_t splits : {1, 2, 3, 7, 32}) {
      const std::int64_t length = gpu::part_length(total, splits, 32);
      EXPECT_EQ(length % 32, 0);
      EXPECT_GE(length, gpu::shortest_part);
      EXPECT_GE(length * splits, total);
      EXPECT_LE((total + length - 1) / length, splits);
    }
  }
}

}  // namespace raggedmla::test
