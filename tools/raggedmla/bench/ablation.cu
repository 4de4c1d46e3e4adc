#include "ablation.hpp"

#include "attention/flatten.hpp"
#include "attention/portable_kernel.cuh"

namespace raggedmla::bench {

namespace {

constexpr gpu::TileShape shape_with(bool eight_warps, bool mask_again, bool fetch_late) {
  gpu::TileShape tile = gpu::cuda_tiles[0];
  if (eight_warps) {
    tile.warps = 8;
    tile.row_warps = 2;
    tile.blocks_per_multiprocessor = 2;
  }
  tile.mask_again = mask_again;
  tile.fetch_late = fetch_late;
  return tile;
}

template <bool eight_warps, bool mask_again, bool fetch_late>
struct Ablated {
  static constexpr gpu::TileShape shape = shape_with(eight_warps, mask_again, fetch_late);

  static void attend(const Attention& call, Stream stream) {
    constexpr int bytes = gpu::layout_of(shape).bytes;
    const AttentionProblem problem = flatten_attention(call);
    const auto kernel = gpu::portable_attention<Ablated>;
    RAGGEDMLA_GPU_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    gpu::launch(kernel, dim3(static_cast<unsigned>(problem.tokens)), dim3(shape.warps * 32),
                static_cast<std::size_t>(bytes), stream, problem, gpu::Partials{}, 1, 1);
  }
};

constexpr AblatedKernel kernels[] = {
    {"as in the library", Ablated<false, false, false>::attend},
    {"8 warps, not 4", Ablated<true, false, false>::attend},
    {"second mask", Ablated<false, true, false>::attend},
    {"entries fetched late", Ablated<false, false, true>::attend},
    {"all three", Ablated<true, true, true>::attend},
};

}  // namespace

std::span<const AblatedKernel> ablated_kernels() { return kernels; }

}  // namespace raggedmla::bench
