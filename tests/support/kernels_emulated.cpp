// The kernels of bf16 products for processors without them: compiled for AVX-512 alone, which makes isa_avx512bf16.hpp
// spell each product with two fused multiply-adds and isa_amx.hpp keep its tiles in arrays.
#include "attention/cpu/amx_products.hpp"
#include "attention/cpu/isa_avx512bf16.hpp"
#include "attention/cpu/tile_kernel_body.hpp"
#include "attention/cpu/vector_products.hpp"

namespace raggedmla::cpu {
extern const TileKernel emulated_avx512bf16_kernel, emulated_amx_kernel;
const TileKernel emulated_avx512bf16_kernel = TileKernelBody<VectorProducts<Avx512Bf16>>::table("avx512bf16_emulated");
const TileKernel emulated_amx_kernel = TileKernelBody<AmxProducts>::table("amx_emulated");
}  // namespace raggedmla::cpu
