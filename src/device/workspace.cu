// Zeroes the counter area of a workspace: a kernel, not a memset, so that a captured graph holds kernel nodes only.
#include "device/backends.hpp"
#include "gpu/preload.hpp"
#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

namespace {

__global__ void zero_bytes(unsigned char* bytes, std::size_t count) {
  const std::size_t i = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * 16;
  if (i + 16 <= count) {
    *reinterpret_cast<uint4*>(bytes + i) = make_uint4(0, 0, 0, 0);
  } else {
    for (std::size_t tail = i; tail < count; ++tail) bytes[tail] = 0;
  }
}

}  // namespace

void zero_counters(void* counters, std::size_t bytes, int device, Stream stream) {
  require_device(device);
  DeviceScope scope(device);
  constexpr unsigned threads = 256;
  const unsigned blocks = static_cast<unsigned>((bytes + 16 * threads - 1) / (16 * threads));
  launch(zero_bytes, dim3(blocks), dim3(threads), 0, stream, static_cast<unsigned char*>(counters), bytes);
}

void preload_device_room() { load_kernel(zero_bytes); }

}  // namespace raggedmla::gpu
