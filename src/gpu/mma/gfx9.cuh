// The matrix vocabulary of CDNA (gfx90a, gfx942): v_mfma_f32_16x16x16_bf16_1k, bf16 in, fp32 out, waves of 64 lanes.
// Compiled and inspected, not run on AMD hardware; the lane maps are tested on the host.
#pragma once

#include "base/bfloat16.hpp"
#include "gpu/mma/gfx9_lanes.hpp"
#include "gpu/shared_memory.cuh"

namespace raggedmla::gpu::mma::gfx9 {

using Bf16x4 = __attribute__((__vector_size__(4 * sizeof(short)))) short;
using F32x4 = __attribute__((__vector_size__(4 * sizeof(float)))) float;

/// 16 x 16 parts of A, B and C.
struct A {
  Words<2> r;
};
struct B {
  Words<2> r;
};
struct alignas(16) C {
  F32x4 v;
};

__device__ inline void multiply([[maybe_unused]] C& c, [[maybe_unused]] const A& a, [[maybe_unused]] const B& b) {
#if defined(__HIP_DEVICE_COMPILE__)
  c.v = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Bf16x4, a.r), __builtin_bit_cast(Bf16x4, b.r), c.v,
                                                  0, 0, 0);
#endif
}

// ---- queries and keys: rows of a row_tile, contracted over 32 channels at a time ------------------------------------

/// Channels [32 * step, 32 * step + 32) of 16 query rows, for two products.
__device__ inline void load_query(A (&a)[2], SharedAddress lane_address, int step) {
  const auto [w] = load_shared<Words<4>>(row_tile::advance(lane_address, 4 * step));
  a[0].r = {w[0], w[1]};
  a[1].r = {w[2], w[3]};
}
/// The same channels of n key rows.
__device__ inline void load_keys(B (&b)[2], SharedAddress lane_address, int step) {
  const auto [w] = load_shared<Words<4>>(row_tile::advance(lane_address, 4 * step));
  b[0].r = {w[0], w[1]};
  b[1].r = {w[2], w[3]};
}

// ---- values: 16 rows of a row_tile, contracted over the rows --------------------------------------------------------

namespace detail {
/// Halves `half` of two words, the first in the low part.
__device__ inline std::uint32_t pair(std::uint32_t first, std::uint32_t second, int half) {
#if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_perm(second, first, half == 0 ? 0x05040100u : 0x07060302u);
#else
  return half == 0 ? (first & 0xFFFFu) | (second << 16) : (first >> 16) | (second & 0xFFFF0000u);
#endif
}
}  // namespace detail

/// Channels [64 * block, 64 * block + 64); their columns are spread as value_channel says.
__device__ inline void load_values(B (&b)[value_fragments], SharedAddress lane_address, int block) {
  Words<2> row[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // rows 4k + i: the swizzle differs from row 4k's by i
    row[i] = load_shared<Words<2>>(row_tile::advance(row_tile::next_row(lane_address, i), 8 * block));
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      b[2 * word + half].r = {detail::pair(row[0].w[word], row[1].w[word], half),
                              detail::pair(row[2].w[word], row[3].w[word], half)};
    }
  }
}

// ---- probabilities: C to A through shared memory, rows of bf16 `pitch` bytes apart ----------------------------------

__device__ inline void store_probabilities(SharedAddress corner, int pitch, int lane, const float (&p)[4]) {
#pragma unroll
  for (int slot = 0; slot < rows_per_lane; ++slot) {
    store_shared(corner + row_of(lane, slot) * pitch + 2 * column_of(lane, 0), bf16_from_float(p[slot]));
  }
}
__device__ inline void load_probabilities(A& a, SharedAddress corner, int pitch, int lane) {
  a.r = load_shared<Words<2>>(corner + outer_of(lane) * pitch + inner_of(lane, 0) * 2);
}

}  // namespace raggedmla::gpu::mma::gfx9
