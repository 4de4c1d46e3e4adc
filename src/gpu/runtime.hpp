// The one header that is CUDA or HIP: names of the runtime, checked calls, launches, the current device.
//
// Kernels are written once. nvcc compiles them for CUDA, clang for HIP; what differs beyond names (matrix instructions,
// asynchronous copies, lane counts) has its own small header in this folder.
#pragma once

#if defined(__HIP__) || defined(RAGGEDMLA_WITH_HIP)
#include <hip/hip_runtime.h>
#define RAGGEDMLA_GPU_IS_HIP 1
#define __grid_constant__  // CUDA's word for a kernel parameter that stays where it is, as HIP's do
#else
#include <cuda_runtime.h>
#define RAGGEDMLA_GPU_IS_HIP 0
#endif

#include <cstdint>
#include <string>

#include "raggedmla/error.hpp"
#include "raggedmla/tensor.hpp"

namespace raggedmla::gpu {

#if RAGGEDMLA_GPU_IS_HIP
using Status = hipError_t;
using NativeStream = hipStream_t;
inline constexpr Status success = hipSuccess;
inline constexpr DeviceType device_type = DeviceType::hip;
inline const char* status_text(Status status) { return hipGetErrorString(status); }
inline Status get_device(int* index) { return hipGetDevice(index); }
inline Status set_device(int index) { return hipSetDevice(index); }
inline Status launch_kernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                            NativeStream stream) {
  return hipLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}
#else
using Status = cudaError_t;
using NativeStream = cudaStream_t;
inline constexpr Status success = cudaSuccess;
inline constexpr DeviceType device_type = DeviceType::cuda;
inline const char* status_text(Status status) { return cudaGetErrorString(status); }
inline Status get_device(int* index) { return cudaGetDevice(index); }
inline Status set_device(int index) { return cudaSetDevice(index); }
inline Status launch_kernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                            NativeStream stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}
#endif

/// Throws a DeviceError that names the call, its place, the device's answer and, if an image is missing, those built
/// in.
[[noreturn]] void throw_device_error(Status status, const char* call, const char* file, int line);

inline void check(Status status, const char* call, const char* file, int line) {
  if (status != success) throw_device_error(status, call, file, line);
}
#define RAGGEDMLA_GPU_CHECK(call) ::raggedmla::gpu::check((call), #call, __FILE__, __LINE__)

/// Makes a device current for a scope and restores the caller's.
class DeviceScope {
 public:
  explicit DeviceScope(int index) {
    RAGGEDMLA_GPU_CHECK(get_device(&previous_));
    if (previous_ != index) {
      RAGGEDMLA_GPU_CHECK(set_device(index));
      changed_ = true;
    }
  }
  ~DeviceScope() {
    if (changed_) static_cast<void>(set_device(previous_));
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

inline NativeStream native(Stream stream) { return static_cast<NativeStream>(stream.handle); }

/// As launch_kernel, but the kernel may take its place before the one in front of it has ended, where device and build
/// can do that.
Status launch_dependent_kernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                               NativeStream stream);

namespace detail {
template <class Launch, class... Parameters, class... Arguments>
void launch_with(Launch launch, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                 Stream stream, const Arguments&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  [&](Parameters... copies) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&copies))...};
    RAGGEDMLA_GPU_CHECK(
        launch(reinterpret_cast<const void*>(kernel), grid, block, pointers, shared_bytes, native(stream)));
  }(arguments...);
}
}  // namespace detail

/// Enqueues `kernel(arguments...)`. Nothing is launched for an empty grid.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, Stream stream,
            const Arguments&... arguments) {
  detail::launch_with(launch_kernel, kernel, grid, block, shared_bytes, stream, arguments...);
}

/// The same for a kernel that calls wait_for_kernel_in_front() (dependent_launch.cuh) before anything else.
template <class... Parameters, class... Arguments>
void launch_dependent(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, Stream stream,
                      const Arguments&... arguments) {
  detail::launch_with(launch_dependent_kernel, kernel, grid, block, shared_bytes, stream, arguments...);
}

/// Properties that schedules need, read once per device.
struct Properties {
  int multiprocessors = 0;
  int lanes = 32;                  // threads that execute together: 32, or 64 on CDNA
  int shared_bytes_per_block = 0;  // the most one block may use (opt-in limit)
  int shared_bytes_per_multiprocessor = 0;
  int compute_major = 0, compute_minor = 0;
  std::string name, architecture;
  std::size_t memory_bytes = 0;
  bool has_image = false;  // this build holds kernels for it
};
/// Cached, safe from any thread, no driver call after the first. Throws DeviceError if there is no such device.
const Properties& properties(int device);
/// The same, and throws DeviceError if the build holds no kernel image for the device: what operators call.
const Properties& require_device(int device);

}  // namespace raggedmla::gpu
