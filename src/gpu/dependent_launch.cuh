// Kernels that follow each other closely (programmatic dependent launch, sm_90): the blocks of a kernel that
// was started by launch_dependent() (runtime.hpp) take their places while the kernel in front of it still runs, and
// wait. Elsewhere the one begins when the other has ended, and these functions do nothing.
#pragma once

#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

/// Waits until the kernel in front has ended and what it wrote can be read. Every block must call it before it reads or
/// writes anything that kernels in front may use.
__device__ inline void wait_for_kernel_in_front() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The blocks of a kernel behind that was started by launch_dependent() may take places that this kernel leaves free,
/// once all blocks of this one have said so (or have ended).
__device__ inline void let_kernel_behind_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace raggedmla::gpu
