// Hopper's copies between global and shared memory that run beside the threads: 16-byte cp.async (any gather; groups of
// them stand in async_copy.cuh), rows of bytes, and tiles of a matrix by the tensor copy engine.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "gpu/barrier.cuh"
#include "gpu/runtime.hpp"

namespace raggedmla::gpu::sm90 {

/// 16 bytes past L1; `valid` false writes zeros and reads nothing.
__device__ inline void copy_16_bytes(std::uint32_t shared_destination, const void* source, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(shared_destination), "l"(source),
               "r"(valid ? 16 : 0)
               : "memory");
}

/// Sends for a line that is read soon.
__device__ inline void prefetch_to_l1(const void* address) { asm volatile("prefetch.global.L1 [%0];" ::"l"(address)); }

/// A box of the matrix that `map` describes, its first element at (column, row), to shared memory; `full` hears of the
/// bytes. Elements outside the matrix come as zeros.
__device__ inline void copy_box(std::uint32_t shared_destination, const CUtensorMap& map, int column, int row,
                                Barrier& full) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_destination),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full.state))
      : "memory");
}

/// The same for three dimensions: the box's first element is (column, row, plane).
__device__ inline void copy_box(std::uint32_t shared_destination, const CUtensorMap& map, int column, int row,
                                int plane, Barrier& full) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(shared_destination),
      "l"(&map), "r"(column), "r"(row), "r"(plane), "r"(shared_address(&full.state))
      : "memory");
}

/// The same for four dimensions, its first element at (0, 0, row, plane).
__device__ inline void copy_box(std::uint32_t shared_destination, const CUtensorMap& map, int row, int plane,
                                BarrierAt full) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %3, %4}], "
      "[%5];" ::"r"(shared_destination),
      "l"(&map), "r"(0), "r"(row), "r"(plane), "r"(full.address)
      : "memory");
}

/// A box of shared memory to where its first element is (column, row, plane); elements outside the matrix are left out.
/// Every thread that wrote the box has called fence_async_proxy() since.
__device__ inline void store_box(const CUtensorMap& map, int column, int row, int plane, std::uint32_t shared_source) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
               "r"(column), "r"(row), "r"(plane), "r"(shared_source)
               : "memory");
}
/// Bytes of shared memory to global memory, a multiple of 16 on 16-byte boundaries. As for store_box.
__device__ inline void store_bytes(const void* destination, std::uint32_t shared_source, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination), "r"(shared_source),
               "r"(bytes)
               : "memory");
}
/// Ends the group of this thread's bulk stores and waits until shared memory has been read; writing may go on.
__device__ inline void wait_for_bulk_stores() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}

/// A dimension of a tensor as the copy engine sees it: its size, the elements of a box, and the bytes between elements
/// (a multiple of 16 below 2^40; ignored for the first dimension, which is packed).
struct BoxDimension {
  std::int64_t size;
  int box;
  std::int64_t bytes;
};

/// Describes a bf16 tensor, innermost dimension first, to the copy engine. Boxes are 64 columns wide and land packed,
/// 128 bytes a row, with the 128-byte swizzle (chunk c of row r at c ^ (r % 8)). Host side, no driver library to link:
/// about 0.2 us.
template <int rank>
CUtensorMap bf16_tensor_map(const void* data, const BoxDimension (&dimensions)[rank]) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result{};
    RAGGEDMLA_GPU_CHECK(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess) throw DeviceError("the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(address);
  }();
  cuuint64_t size[rank], pitch[rank];
  cuuint32_t box[rank], step[rank];
  for (int i = 0; i < rank; ++i) {
    size[i] = static_cast<cuuint64_t>(dimensions[i].size);
    box[i] = static_cast<cuuint32_t>(dimensions[i].box);
    step[i] = 1;
    if (i > 0) pitch[i - 1] = static_cast<cuuint64_t>(dimensions[i].bytes);
  }
  CUtensorMap map;
  const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, const_cast<void*>(data), size, pitch,
                                 box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) throw DeviceError("cuTensorMapEncodeTiled failed with " + std::to_string(status));
  return map;
}

}  // namespace raggedmla::gpu::sm90
