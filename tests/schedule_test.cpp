// How GPU attention calls are cut: a pure function, checked without a GPU.
#include <gtest/gtest.h>

#include "attention/schedule.hpp"
#include "attention/unpacked.hpp"

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

namespace {

/// Queries of equally long requests over a block table of fp8 pages of 64 rows.
AttentionProblem table_call(std::int64_t tokens, std::int64_t requests, std::int64_t columns) {
  static const std::int32_t table = 0;
  AttentionProblem problem = call(tokens, 16, 0);
  auto& [store, list] = problem.segments[0];
  store.kind = StoreKind::fp8_ocp;
  store.rows_per_page = 64;
  list.kind = ListKind::range;
  list.requests = requests;
  list.table = {{&table, columns, 1, false}, requests, columns, 64, store.rows / 64};
  return problem;
}

AttentionProblem fp8_lists(std::int64_t tokens, std::int64_t list_length, std::int64_t rows) {
  AttentionProblem problem = call(tokens, 16, list_length);
  problem.segments[0].store.kind = StoreKind::fp8_fnuz;
  problem.segments[0].store.rows = rows;
  return problem;
}

bool unpacks(const AttentionProblem& problem, const Schedule& schedule = {}) {
  return gpu::plan_unpacking(problem, schedule, true).bytes > 0;
}

}  // namespace

TEST(Unpacking, FollowsReuse) {
  EXPECT_TRUE(unpacks(fp8_lists(4096, 640, 8192)));
  EXPECT_FALSE(unpacks(fp8_lists(64, 640, 1 << 17)));
  EXPECT_TRUE(unpacks(table_call(4096, 1, 64)));
  EXPECT_TRUE(unpacks(table_call(4096, 8, 64)));
  EXPECT_FALSE(unpacks(table_call(256, 256, 64)));  // decode
  EXPECT_FALSE(unpacks(call(4096, 16, 640)));       // bf16 rows
}

TEST(Unpacking, ScratchHasALimit) {
  EXPECT_FALSE(unpacks(fp8_lists(1 << 20, 640, 1 << 20)));
  EXPECT_FALSE(unpacks(table_call(1 << 20, 1, 1 << 20)));
  EXPECT_FALSE(unpacks(table_call(1 << 20, 1 << 15, std::int64_t{1} << 50)));
  EXPECT_LE(gpu::plan_unpacking(table_call(1 << 20, 1, 8000), {}, true).bytes, std::size_t{512} << 20);
}

TEST(Unpacking, AllSegmentsOrNone) {
  AttentionProblem problem = table_call(4096, 1, 64);
  problem.segments[problem.segment_count++] = fp8_lists(4096, 640, 1 << 20).segments[0];
  EXPECT_FALSE(unpacks(problem));
  problem.segments[1].store.rows = 1 << 12;
  EXPECT_TRUE(unpacks(problem));
}

TEST(Unpacking, NeverWhereBitsMustNotDependOnTheBatch) {
  Schedule schedule;
  schedule.batch_invariant = true;
  EXPECT_FALSE(unpacks(table_call(4096, 1, 64), schedule));
}

TEST(Unpacking, PlacesDoNotOverlapAndTablesAreInOrder) {
  AttentionProblem problem = table_call(4096, 2, 65);
  problem.segments[problem.segment_count++] = fp8_lists(4096, 640, 1000).segments[0];
  const gpu::UnpackPlan plan = gpu::plan_unpacking(problem, {}, true);
  std::byte* const scratch = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 20);
  const AttentionProblem rows = gpu::unpacked(problem, plan, scratch);
  const RowStore &pages = rows.segments[0].store, &flat = rows.segments[1].store;
  EXPECT_EQ(pages.kind, StoreKind::bf16);
  EXPECT_EQ(pages.rows, 2 * 65 * 64);
  EXPECT_EQ(pages.row(65 * 64) - pages.data, std::int64_t{65 * 64 * 1024});
  EXPECT_NE(rows.segments[0].list.table.in_order, nullptr);
  EXPECT_EQ(rows.segments[0].list.table.pages, 2 * 65);
  const auto* table = static_cast<const std::uint8_t*>(rows.segments[0].list.table.entries.data);
  EXPECT_GE(table, pages.data + pages.rows * 1024);
  EXPECT_GE(flat.data, table + (2 * 65 + 2) * 4);
  EXPECT_EQ(flat.rows, 1000);
  EXPECT_EQ(flat.rows_per_page, 1);
  EXPECT_LE(flat.data + flat.rows * 1024, reinterpret_cast<std::uint8_t*>(scratch + plan.bytes));
}

}  // namespace raggedmla::test
