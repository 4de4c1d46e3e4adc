// Attention on any GPU: the shapes that the kernel of portable_kernel.cuh is built for, and its launch.
#include <array>
#include <utility>

#include "attention/backends.hpp"
#include "attention/merge.hpp"
#include "attention/portable.hpp"
#include "attention/portable_kernel.cuh"
#include "gpu/preload.hpp"

namespace raggedmla::gpu {

namespace {

#if RAGGEDMLA_GPU_IS_HIP
constexpr const auto& tiles = cdna_tiles;
#else
constexpr const auto& tiles = cuda_tiles;
#endif
constexpr std::size_t tile_count = std::size(tiles);

/// A row of the table.
template <std::size_t i>
struct TableTile {
  static constexpr TileShape shape = tiles[i];
};

using AttendKernel = void (*)(AttentionProblem, Partials, int, int);

template <std::size_t... i>
constexpr std::array<AttendKernel, tile_count> kernel_table(std::index_sequence<i...>) {
  return {portable_attention<TableTile<i>>...};
}
AttendKernel kernel_of(int tile) {
  static constexpr auto table = kernel_table(std::make_index_sequence<tile_count>());
  return table[static_cast<std::size_t>(tile)];
}

void require_loaded(int device, int tile) {
  static std::array<FirstUse, tile_count> first_use;
  const auto at = static_cast<std::size_t>(tile);
  first_use[at].on(device, [&] { load_kernel(kernel_of(tile), layout_of(tiles[at]).bytes); });
}

}  // namespace

AttentionPlan portable::plan(const AttentionProblem& problem, const Schedule& schedule, int device) {
  const Properties& found = require_device(device);
  return plan_attention(problem, schedule,
                        {found.multiprocessors, found.lanes, found.shared_bytes_per_block,
                         found.shared_bytes_per_multiprocessor, found.compute_major});
}

std::size_t portable::workspace_bytes(const AttentionProblem& problem, const Schedule& schedule, int device) {
  return workspace_bytes_for_parts(plan(problem, schedule, device));
}

void portable::attention(const AttentionProblem& problem, const Schedule& schedule, int device, Workspace workspace,
                         Stream stream) {
  const AttentionPlan plan = portable::plan(problem, schedule, device);
  if (plan.blocks == 0) return;
  DeviceScope scope(device);
  require_loaded(device, plan.tile);
  const Partials partials = place_parts(plan, workspace);
  const unsigned threads = static_cast<unsigned>(plan.shape.warps * properties(device).lanes);
  launch(kernel_of(plan.tile), dim3(static_cast<unsigned>(plan.blocks)), dim3(threads),
         static_cast<std::size_t>(layout_of(plan.shape).bytes), stream, problem, partials,
         static_cast<int>(plan.head_groups), plan.splits);
  if (plan.splits > 1) merge_parts(problem, plan.splits, partials, stream);
}

void preload_attention() {
  int device = 0;
  RAGGEDMLA_GPU_CHECK(get_device(&device));
  const Properties& found = properties(device);
  for (std::size_t i = 0; i < tile_count; ++i) {
    if (layout_of(tiles[i]).bytes <= found.shared_bytes_per_block) require_loaded(device, static_cast<int>(i));
  }
}

}  // namespace raggedmla::gpu
