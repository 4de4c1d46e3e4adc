// One matrix vocabulary for all GPUs: A (16 x 16), B (16 x n) and C (16 x n) fragments of a warp, loads from shared
// memory and the product. Its two spellings have the same names; kernels use `mma::` and never an instruction.
#pragma once

#include "gpu/runtime.hpp"

#if RAGGEDMLA_GPU_IS_HIP
#include "gpu/mma/gfx9.cuh"
namespace raggedmla::gpu::mma {
using namespace gfx9;
}
#else
#include "gpu/mma/sm80.cuh"
namespace raggedmla::gpu::mma {
using namespace sm80;
}
#endif
