#include "attention/cpu/isa_avx512.hpp"
#include "attention/cpu/tile_kernel_body.hpp"
#include "attention/cpu/vector_products.hpp"

namespace raggedmla::cpu {
const TileKernel avx512_kernel = TileKernelBody<VectorProducts<Avx512>>::table("avx512");
}
