// Logits are kept in base 2: the constants for that, and single instructions that C++ has no name for.
#pragma once

#include <cstdint>

#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

inline constexpr float log2_e = 1.4426950408889634f;
inline constexpr float ln_2 = 0.6931471805599453f;

/// 2^x, relative error about 2^-22, subnormal numbers are 0.
__device__ inline float exp2_fast(float x) {
#if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_exp2f(x);
#elif defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return x;  // the host pass only parses device code
#endif
}

/// log2(x), as accurate.
__device__ inline float log2_fast(float x) {
#if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_logf(x);
#elif defined(__CUDA_ARCH__)
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return x;
#endif
}

/// 1 / x, relative error about 2^-22; 0 beyond 2^126.
__device__ inline float reciprocal_fast(float x) {
#if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_rcpf(x);
#elif defined(__CUDA_ARCH__)
  return __fdividef(1.0f, x);
#else
  return x;
#endif
}

#if !RAGGEDMLA_GPU_IS_HIP
/// Two bf16, round to nearest even.
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
#endif

}  // namespace raggedmla::gpu
