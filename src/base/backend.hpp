// Which GPU backend this build holds. The only place that looks at the build's macros outside src/gpu/.
#pragma once

#include "raggedmla/tensor.hpp"

namespace raggedmla {

/// Calls into `gpu::` stand in `if constexpr (with_gpu)`, so that builds without a GPU backend need no such symbols.
#if defined(RAGGEDMLA_WITH_CUDA)
inline constexpr bool with_gpu = true;
inline constexpr DeviceType gpu_device_type = DeviceType::cuda;
#elif defined(RAGGEDMLA_WITH_HIP)
inline constexpr bool with_gpu = true;
inline constexpr DeviceType gpu_device_type = DeviceType::hip;
#else
inline constexpr bool with_gpu = false;
inline constexpr DeviceType gpu_device_type = DeviceType::cpu;
#endif

/// Throws DeviceError("<operator>: ...") unless this build has a backend for the device's type.
void require_backend(const char* operator_name, Device device);

}  // namespace raggedmla
