// A large first kernel argument that is indexed at run time stays where the launch put it.
#pragma once

#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

/// CUDA: the parameter itself, declared __grid_constant__. HIP: clang would copy an argument whose members are indexed
/// to every thread's scratch memory; the argument segment, where the first one lies at the start, needs no copy.
template <class T>
__device__ const T& first_kernel_argument([[maybe_unused]] const T& argument) {
#if defined(__HIP_DEVICE_COMPILE__)
  return *(const T*)__builtin_amdgcn_kernarg_segment_ptr();
#else
  return argument;
#endif
}

}  // namespace raggedmla::gpu
