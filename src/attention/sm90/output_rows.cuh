// The store of output rows that are spread over a warp as products leave them: lane l has, of every 8 channels,
// channels 2 (l % 4) and + 1 of rows l / 4 and l / 4 + 8. `value(g, e)` is element e of these two in group g of 8.
#pragma once

#include "attention/problem.hpp"
#include "gpu/fast_math.cuh"
#include "gpu/warp.cuh"

namespace raggedmla::gpu::sm90 {

/// Inverse rotation of the last 64 of a row's channels by query t's position: groups [first_group, first_group + 8).
template <int first_group, class Value>
__device__ void rotate_back(const AttentionProblem& problem, std::int64_t t, Value&& value) {
  const std::int64_t position = problem.positions(t);
  if (position < 0 || position >= problem.cos_sin_rows) return;
  const float* cosines = problem.cos_sin + position * problem.cos_sin_stride;
#pragma unroll
  for (int g = 0; g < 8; ++g) {
    const int pair = 4 * g + lane_index() % 4;
    const float cosine = cosines[pair], sine = cosines[32 + pair];
    float& even = value(first_group + g, 0);
    float& odd = value(first_group + g, 1);
    const float turned = even * cosine + odd * sine;
    odd = odd * cosine - even * sine;
    even = turned;
  }
}

/// `wide`: the row allows stores of 8 bytes.
template <int groups, class Value>
__device__ void store_row(float* out, bool valid, bool wide, Value&& value) {
  if (!valid) return;
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    float* to = out + 8 * g + 2 * (lane_index() % 4);
    if (wide) {
      *reinterpret_cast<float2*>(to) = {value(g, 0), value(g, 1)};
    } else {
      to[0] = value(g, 0);
      to[1] = value(g, 1);
    }
  }
}

/// The four lanes of a row exchange so that each holds all 8 channels of one of four groups. `wide`: the row allows
/// stores of 16 bytes. All lanes of the warp take part; those without a `valid` row store nothing.
template <int groups, class Value>
__device__ void store_row(std::uint16_t* out, bool valid, bool wide, Value&& value) {
  const int lane = lane_index();
  const bool upper = (lane & 2) != 0, odd = (lane & 1) != 0;
#pragma unroll
  for (int g = 0; g < groups; g += 4) {
    std::uint32_t word[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) word[j] = pack_bf16(value(g + j, 0), value(g + j, 1));
    const std::uint32_t a0 = shuffle_xor(upper ? word[0] : word[2], 2), a1 = shuffle_xor(upper ? word[1] : word[3], 2);
    if (upper) word[0] = a0, word[1] = a1;
    else word[2] = a0, word[3] = a1;
    const std::uint32_t b0 = shuffle_xor(odd ? word[0] : word[1], 1), b1 = shuffle_xor(odd ? word[2] : word[3], 1);
    if (odd) word[0] = b0, word[2] = b1;
    else word[1] = b0, word[3] = b1;
    if (!valid) continue;
    std::uint16_t* to = out + 8 * (g + lane % 4);
    if (wide) {
      *reinterpret_cast<uint4*>(to) = {word[0], word[1], word[2], word[3]};
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        to[2 * j] = static_cast<std::uint16_t>(word[j]);
        to[2 * j + 1] = static_cast<std::uint16_t>(word[j] >> 16);
      }
    }
  }
}

}  // namespace raggedmla::gpu::sm90
