#include "gpu/preload.hpp"

#include "attention/sm90/fp8_heads.hpp"
#include "attention/sm90/query_tiles.hpp"
#include "attention/sm90/single_query.hpp"
#include "attention/sm90/unpack.hpp"
#include "device/backends.hpp"

namespace raggedmla::gpu {

void load_kernel_image(const void* kernel, int dynamic_shared_bytes) {
#if RAGGEDMLA_GPU_IS_HIP
  hipFuncAttributes attributes;
  RAGGEDMLA_GPU_CHECK(hipFuncGetAttributes(&attributes, kernel));
  static_cast<void>(dynamic_shared_bytes);  // the 64 KiB of a workgroup need no opt-in
#else
  cudaFuncAttributes attributes;
  RAGGEDMLA_GPU_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  if (dynamic_shared_bytes > 48 * 1024) {
    RAGGEDMLA_GPU_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic_shared_bytes));
  }
#endif
}

void preload(int device) {
  require_device(device);
  DeviceScope scope(device);
  preload_device_room();
  preload_quantize();
  preload_read_rows();
  preload_compact_lists();
  preload_row_lists();
  preload_attention();
  preload_merge();
#if defined(RAGGEDMLA_WITH_SM90)
  if (properties(device).compute_major == 9) {
    sm90::preload();
    sm90::single_query::preload();
    sm90::fp8_heads::preload();
    sm90::preload_unpack();
  }
#endif
}

}  // namespace raggedmla::gpu
