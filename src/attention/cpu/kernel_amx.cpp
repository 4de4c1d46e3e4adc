#include "attention/cpu/amx_products.hpp"
#include "attention/cpu/tile_kernel_body.hpp"

namespace raggedmla::cpu {
const TileKernel amx_kernel = TileKernelBody<AmxProducts>::table("amx");
}
