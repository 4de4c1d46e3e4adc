// The matrix vocabulary of NVIDIA GPUs from sm_80 on: ldmatrix and mma.sync m16n8k16, bf16 in, fp32 out.
#pragma once

#include "gpu/mma/sm80_lanes.hpp"
#include "gpu/shared_memory.cuh"

namespace raggedmla::gpu::mma::sm80 {

/// 16 x 16, 16 x 8 and 16 x 8 parts of A, B and C.
struct A {
  std::uint32_t r[4];
};
struct B {
  std::uint32_t r[2];
};
struct alignas(16) C {
  float v[4];
};

__device__ inline void multiply(C& c, const A& a, const B& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
}

namespace detail {
__device__ inline void load_matrices(std::uint32_t& r0, std::uint32_t& r1, std::uint32_t& r2, std::uint32_t& r3,
                                     SharedAddress address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(address));
}
__device__ inline void load_transposed_matrices(std::uint32_t& r0, std::uint32_t& r1, std::uint32_t& r2,
                                                std::uint32_t& r3, SharedAddress address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(address));
}
}  // namespace detail

// ---- queries and keys: rows of a row_tile, contracted over 32 channels at a time ------------------------------------

/// Channels [32 * step, 32 * step + 32) of 16 query rows, for two products.
__device__ inline void load_query(A (&a)[2], SharedAddress lane_address, int step) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    detail::load_matrices(a[i].r[0], a[i].r[1], a[i].r[2], a[i].r[3],
                          row_tile::advance(lane_address, 4 * step + 2 * i));
  }
}
/// The same channels of n key rows.
__device__ inline void load_keys(B (&b)[2], SharedAddress lane_address, int step) {
  detail::load_matrices(b[0].r[0], b[0].r[1], b[1].r[0], b[1].r[1], row_tile::advance(lane_address, 4 * step));
}

// ---- values: 16 rows of a row_tile, contracted over the rows --------------------------------------------------------

/// Channels [16 * block, 16 * block + 16).
__device__ inline void load_values(B (&b)[value_fragments], SharedAddress lane_address, int block) {
  detail::load_transposed_matrices(b[0].r[0], b[0].r[1], b[1].r[0], b[1].r[1],
                                   row_tile::advance(lane_address, 2 * block));
}

// ---- probabilities: C to A through shared memory, rows of bf16 `pitch` bytes apart ----------------------------------

__device__ inline void store_probabilities(SharedAddress corner, int pitch, int lane, const float (&p)[4]) {
#pragma unroll
  for (int slot = 0; slot < rows_per_lane; ++slot) {
    std::uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(p[2 * slot + 1]), "f"(p[2 * slot]));
    store_shared(corner + row_of(lane, slot) * pitch + 2 * column_of(lane, 0), packed);
  }
}
__device__ inline void load_probabilities(A& a, SharedAddress corner, int pitch, int lane) {
  detail::load_matrices(a.r[0], a.r[1], a.r[2], a.r[3], corner + (lane % 16) * pitch + (lane / 16) * 16);
}

}  // namespace raggedmla::gpu::mma::sm80
