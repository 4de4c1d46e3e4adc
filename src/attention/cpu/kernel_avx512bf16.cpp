#include "attention/cpu/isa_avx512bf16.hpp"
#include "attention/cpu/tile_kernel_body.hpp"
#include "attention/cpu/vector_products.hpp"

namespace raggedmla::cpu {
const TileKernel avx512bf16_kernel = TileKernelBody<VectorProducts<Avx512Bf16>>::table("avx512bf16");
}
