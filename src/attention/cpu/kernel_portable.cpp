#include "attention/cpu/isa_portable.hpp"
#include "attention/cpu/tile_kernel_body.hpp"
#include "attention/cpu/vector_products.hpp"

namespace raggedmla::cpu {
const TileKernel portable_kernel = TileKernelBody<VectorProducts<Portable>>::table("portable");
}
