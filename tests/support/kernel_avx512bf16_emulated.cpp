// The AVX-512-BF16 kernel for processors without bf16 products: compiled without that instruction set, which makes
// isa_avx512bf16.hpp spell each product with two fused multiply-adds.
#include "attention/cpu/isa_avx512bf16.hpp"
#include "attention/cpu/tile_kernel_body.hpp"

namespace raggedmla::cpu {
extern const TileKernel emulated_avx512bf16_kernel;
const TileKernel emulated_avx512bf16_kernel = TileKernelBody<Avx512Bf16>::table("avx512bf16_emulated");
}  // namespace raggedmla::cpu
