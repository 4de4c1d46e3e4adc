// Which CPU kernels this processor can run, and which one is used.
#pragma once

#include <span>

#include "attention/cpu/tile_kernel.hpp"

namespace raggedmla::cpu {

/// The kernels of this build that this processor runs, in the order of the instruction sets; the first is `portable`.
std::span<const TileKernel* const> usable_kernels();

/// The kernels of this build, whether or not they run here.
std::span<const TileKernel* const> built_kernels();

/// The fastest of usable_kernels(), or the one that the environment variable RAGGEDMLA_CPU names (read once, for tests
/// and measurements). An Error if it names none of them.
const TileKernel& chosen_kernel();

}  // namespace raggedmla::cpu
