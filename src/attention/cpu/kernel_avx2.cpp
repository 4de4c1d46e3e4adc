#include "attention/cpu/isa_avx2.hpp"
#include "attention/cpu/tile_kernel_body.hpp"

namespace raggedmla::cpu {
const TileKernel avx2_kernel = TileKernelBody<Avx2>::table("avx2");
}
