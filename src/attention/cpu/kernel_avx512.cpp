#include "attention/cpu/isa_avx512.hpp"
#include "attention/cpu/tile_kernel_body.hpp"

namespace raggedmla::cpu {
const TileKernel avx512_kernel = TileKernelBody<Avx512>::table("avx512");
}
