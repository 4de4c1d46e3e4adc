#include "attention/cpu/isa_portable.hpp"
#include "attention/cpu/tile_kernel_body.hpp"

namespace raggedmla::cpu {
const TileKernel portable_kernel = TileKernelBody<Portable>::table("portable");
}
