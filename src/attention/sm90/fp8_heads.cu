// Attention of many heads over fp8 pages on Hopper.
//
// One block, one per multiprocessor, attends with 64 heads of one query to one part of that query's lists, 64 rows at a
// time. A row is decoded once for all heads and serves as key and as value:
//
//   loading warpgroup     | copy raw rows ahead, decode K0 | decode K1 | ...    two decoded tiles of 64 KiB
//   score warpgroup                          | S0 P0 | S1 P1 | ...              S = q K^T; half of q in registers
//   output warpgroups                                | O += P0 V0 | ...         two, 64 x 256 fp32 each in registers
//
// Calls are cut as the portable kernel's are, and parts joined by the same merge kernel.
#include "attention/portable.hpp"
#include "attention/sm90/fp8_heads.hpp"
#include "attention/sm90/fp8_heads_load.cuh"
#include "attention/sm90/fp8_heads_output.cuh"
#include "attention/sm90/fp8_heads_score.cuh"
#include "gpu/dependent_launch.cuh"
#include "gpu/preload.hpp"

namespace raggedmla::gpu::sm90::fp8_heads {

namespace {

constexpr int block_threads = 4 * group_threads;

/// Grid: queries x head groups x parts in one dimension, parts fastest.
__global__ void __launch_bounds__(block_threads, 1)
    attend_fp8_heads(const __grid_constant__ AttentionProblem problem, const __grid_constant__ Partials partials,
                     int head_groups, int splits) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(shared_bytes);
  const unsigned unit = blockIdx.x / static_cast<unsigned>(splits);
  const Place place{static_cast<int>(unit / static_cast<unsigned>(head_groups)),
                    static_cast<int>(unit % static_cast<unsigned>(head_groups)) * heads,
                    static_cast<int>(blockIdx.x % static_cast<unsigned>(splits)), splits};
  if (warp_index() == 0) {
    const int count = cut_lists(problem, place.t, place.split, splits, tile_rows, shared.parts);
    if (lane_index() == 0) shared.part_count = count;
  } else if (threadIdx.x == group_threads) {
    for (int i = 0; i < stages; ++i) {
      shared.tile_full[i].initialize(tile_full_arrivals);
      shared.tile_empty[i].initialize(tile_empty_arrivals);
    }
    for (int i = 0; i < exchanges; ++i) {
      shared.scores_full[i].initialize(scores_full_arrivals);
      shared.scores_empty[i].initialize(scores_empty_arrivals);
    }
    shared.q_taken.initialize(q_taken_arrivals);
    fence_barrier_initialization();
  }
  __syncthreads();
  let_kernel_behind_start();  // the merge kernel
  if (splits > 1 && place.split == 0 && place.first_head == 0 && threadIdx.x == 0) {
    partials.counts[place.t] = shared.part_count;
  }
  if (place.split >= shared.part_count && place.split > 0) return;

  const int tiles = tiles_of(shared.parts, problem.segment_count, tile_rows);
  const int group = static_cast<int>(threadIdx.x) / group_threads;
  if (group == 0) {
    shrink_registers<load_registers>();
    Loader(problem, shared, tiles).run();
  } else if (group == 1) {
    shrink_registers<score_registers>();
    ScoreGroup(problem, shared, place, tiles).run(partials);
  } else {
    grow_registers<output_registers>();
    OutputGroup(problem, shared, place, tiles, group - 2).run(partials);
  }
}

}  // namespace

bool takes(const AttentionProblem& problem) {
  if (problem.heads <= heads / 2 || problem.segment_count < 1) return false;
  if (!(problem.scale > 0)) return false;  // maxima are taken before the scale
  for (int s = 0; s < problem.segment_count; ++s) {
    if (problem.segments[s].store.kind == StoreKind::bf16) return false;
  }
  return true;
}

std::size_t workspace_bytes(const AttentionProblem& problem, const Schedule& schedule, int device) {
  return workspace_bytes_for_parts(portable::plan(problem, schedule, device));
}

void attention(const AttentionProblem& problem, const Schedule& schedule, int device, Workspace workspace,
               Stream stream) {
  const AttentionPlan plan = portable::plan(problem, schedule, device);
  if (plan.blocks == 0) return;
  DeviceScope scope(device);
  static FirstUse first_use;
  first_use.on(device, preload);
  const Partials partials = place_parts(plan, workspace);
  launch(attend_fp8_heads, dim3(static_cast<unsigned>(plan.blocks)), dim3(block_threads), sizeof(SharedMemory), stream,
         problem, partials, static_cast<int>(plan.head_groups), plan.splits);
  if (plan.splits > 1) merge_parts(problem, plan.splits, partials, stream);
}

void preload() { load_kernel(attend_fp8_heads, sizeof(SharedMemory)); }

}  // namespace raggedmla::gpu::sm90::fp8_heads
