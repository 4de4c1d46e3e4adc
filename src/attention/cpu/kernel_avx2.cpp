#include "attention/cpu/isa_avx2.hpp"
#include "attention/cpu/tile_kernel_body.hpp"
#include "attention/cpu/vector_products.hpp"

namespace raggedmla::cpu {
const TileKernel avx2_kernel = TileKernelBody<VectorProducts<Avx2>>::table("avx2");
}
