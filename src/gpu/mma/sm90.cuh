// Hopper's warpgroup matrix instructions (wgmma): D[64, n] += A[64, 16] B[16, n], bf16 in, fp32 out, run by the four
// warps of a warpgroup together and asynchronously. B, and A unless it is in registers, are read from shared memory
// through descriptors.
//
// All operands here lie in one layout: blocks of 64 columns, in a block rows of 128 bytes, the 16-byte chunk c of row r
// stored at chunk c ^ (r % 8) (the 128-byte swizzle; blocks start on multiples of 1024 bytes).
//
//   as K-major operand (rows are m or n, columns are k): a step of 16 columns is 32 bytes further; groups of 8 rows are
//   1024 bytes apart;
//   as transposed operand (rows are k, columns are n): a step of 16 rows is 2048 bytes further; groups of 8 rows are
//   1024 bytes apart, blocks of 64 columns one block further.
//
// D in registers: warp w of the warpgroup holds rows 16w to 16w + 15; lane l holds, of every 8 columns, columns
// 2 (l % 4) and + 1 of rows l / 4 (d[0], d[1]) and l / 4 + 8 (d[2], d[3]). A in registers: the same four fragments as
// mma.m16n8k16: (rows l / 4, + 8) x (columns 2 (l % 4), + 8), two columns a register.
#pragma once

#include <cstdint>

#include "gpu/barrier.cuh"

namespace raggedmla::gpu::sm90 {

/// Bytes of 16 columns in a K-major operand and of 16 rows in a transposed one.
inline constexpr std::uint32_t k_step_bytes = 32;
inline constexpr std::uint32_t transposed_k_step_bytes = 2048;

namespace descriptor {
// Bits 0-13 address, 16-29 leading and 32-45 stride byte offset, all in units of 16 bytes; 62-63: 1 = 128-byte swizzle.
__device__ inline std::uint64_t make(std::uint32_t address, std::uint32_t leading_bytes, std::uint32_t stride_bytes) {
  return (std::uint64_t{1} << 62) | static_cast<std::uint64_t>(stride_bytes >> 4) << 32 |
         static_cast<std::uint64_t>(leading_bytes >> 4) << 16 | ((address & 0x3FFFFu) >> 4);
}
/// Rows are m or n, columns are k.
__device__ inline std::uint64_t k_major(std::uint32_t address) { return make(address, 16, 1024); }
/// Rows are k, columns are n; blocks of 64 columns stand `block_bytes` apart.
__device__ inline std::uint64_t transposed(std::uint32_t address, std::uint32_t block_bytes) {
  return make(address, block_bytes, 1024);
}
/// The descriptor `bytes` further on.
__device__ inline std::uint64_t advance(std::uint64_t d, std::uint32_t bytes) {
  return (d & 0xFFFFFFFF00000000u) | (static_cast<std::uint32_t>(d) + (bytes >> 4));  // no carry into the upper word
}
}  // namespace descriptor

/// Before the first product of a group: registers written so far are what the products read.
__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of products.
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most `pending` groups are still running.
template <int pending = 0>
__device__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
/// Tells the compiler that the registers change while products run.
template <int count>
__device__ void keep_in_registers(float (&d)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// D[64, 64] (+)= A (registers) B, both K-major.
__device__ inline void product(float (&d)[32], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred accumulate;\n"
      "setp.ne.b32 accumulate, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, accumulate, 1, 1, 0;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}

/// D[64, 64] (+)= A B, both K-major.
__device__ inline void product(float (&d)[32], std::uint64_t a, std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred accumulate;\n"
      "setp.ne.b32 accumulate, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, accumulate, 1, 1, 0, 0;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

/// D[64, 16] (+)= A (registers) B, both K-major.
__device__ inline void product(float (&d)[8], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred accumulate;\n"
      "setp.ne.b32 accumulate, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, %12, accumulate, 1, 1, 0;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}

/// D[64, 16] (+)= A B, both K-major.
__device__ inline void product(float (&d)[8], std::uint64_t a, std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred accumulate;\n"
      "setp.ne.b32 accumulate, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, accumulate, 1, 1, 0, 0;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

/// D[64, 128] (+)= A B, A K-major, B transposed; D is d[first] to d[first + 63]. (One instruction for 256 columns
/// exists, but its 128 registers do not fit what ptxas grants a kernel of 512 threads before it moves registers.)
template <int first, int count>
__device__ void product_transposed(float (&d)[count], std::uint64_t a, std::uint64_t b, bool accumulate) {
  static_assert(first + 64 <= count);
  asm volatile(
      "{\n"
      ".reg .pred accumulate;\n"
      "setp.ne.b32 accumulate, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, accumulate, 1, 1, 0, 1;\n"
      "}"
      : "+f"(d[first + 0]), "+f"(d[first + 1]), "+f"(d[first + 2]), "+f"(d[first + 3]), "+f"(d[first + 4]),
        "+f"(d[first + 5]), "+f"(d[first + 6]), "+f"(d[first + 7]), "+f"(d[first + 8]), "+f"(d[first + 9]),
        "+f"(d[first + 10]), "+f"(d[first + 11]), "+f"(d[first + 12]), "+f"(d[first + 13]), "+f"(d[first + 14]),
        "+f"(d[first + 15]), "+f"(d[first + 16]), "+f"(d[first + 17]), "+f"(d[first + 18]), "+f"(d[first + 19]),
        "+f"(d[first + 20]), "+f"(d[first + 21]), "+f"(d[first + 22]), "+f"(d[first + 23]), "+f"(d[first + 24]),
        "+f"(d[first + 25]), "+f"(d[first + 26]), "+f"(d[first + 27]), "+f"(d[first + 28]), "+f"(d[first + 29]),
        "+f"(d[first + 30]), "+f"(d[first + 31]), "+f"(d[first + 32]), "+f"(d[first + 33]), "+f"(d[first + 34]),
        "+f"(d[first + 35]), "+f"(d[first + 36]), "+f"(d[first + 37]), "+f"(d[first + 38]), "+f"(d[first + 39]),
        "+f"(d[first + 40]), "+f"(d[first + 41]), "+f"(d[first + 42]), "+f"(d[first + 43]), "+f"(d[first + 44]),
        "+f"(d[first + 45]), "+f"(d[first + 46]), "+f"(d[first + 47]), "+f"(d[first + 48]), "+f"(d[first + 49]),
        "+f"(d[first + 50]), "+f"(d[first + 51]), "+f"(d[first + 52]), "+f"(d[first + 53]), "+f"(d[first + 54]),
        "+f"(d[first + 55]), "+f"(d[first + 56]), "+f"(d[first + 57]), "+f"(d[first + 58]), "+f"(d[first + 59]),
        "+f"(d[first + 60]), "+f"(d[first + 61]), "+f"(d[first + 62]), "+f"(d[first + 63])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

/// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_fragments(std::uint32_t (&a)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address));
}
/// The same, each matrix transposed.
__device__ inline void load_transposed_fragments(std::uint32_t (&a)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address));
}
__device__ inline void store_fragments(std::uint32_t address, std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                       std::uint32_t a3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a0), "r"(a1),
               "r"(a2), "r"(a3)
               : "memory");
}

}  // namespace raggedmla::gpu::sm90
