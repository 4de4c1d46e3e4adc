// What the threads of one warp do together. A warp is 32 lanes on NVIDIA GPUs and 64 on CDNA (a "wave"): code uses
// `warp_lanes` and `LaneMask` and never the number 32. All lanes of the warp must take part in every call.
#pragma once

#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

#if RAGGEDMLA_GPU_IS_HIP
#if defined(__AMDGCN_WAVEFRONT_SIZE)
inline constexpr int warp_lanes = __AMDGCN_WAVEFRONT_SIZE;
#else
inline constexpr int warp_lanes = 64;  // the host pass; kernels are compiled for CDNA
#endif
inline constexpr int large_block_threads = 512;
using LaneMask = std::uint64_t;

__device__ inline void sync_warp() { __builtin_amdgcn_wave_barrier(); }
__device__ inline LaneMask lanes_where(bool vote) { return __ballot(vote); }
__device__ inline int count_bits(LaneMask mask) { return __popcll(mask); }

/// The value of lane `source` (within groups of `width` lanes).
template <class T>
__device__ T shuffle(T value, int source, int width = warp_lanes) {
  return __shfl(value, source, width);
}
template <class T>
__device__ T shuffle_xor(T value, int lane_mask, int width = warp_lanes) {
  return __shfl_xor(value, lane_mask, width);
}
template <class T>
__device__ T shuffle_up(T value, unsigned distance, int width = warp_lanes) {
  return __shfl_up(value, distance, width);
}
#else
inline constexpr int warp_lanes = 32;
/// The largest block whose threads have registers for 16 words in flight: 64 on NVIDIA GPUs, 256 on CDNA.
inline constexpr int large_block_threads = 1024;
using LaneMask = std::uint32_t;
inline constexpr LaneMask all_lanes = 0xFFFFFFFFu;

__device__ inline void sync_warp() { __syncwarp(); }
__device__ inline LaneMask lanes_where(bool vote) { return __ballot_sync(all_lanes, vote); }
__device__ inline int count_bits(LaneMask mask) { return __popc(mask); }

/// The value of lane `source` (within groups of `width` lanes).
template <class T>
__device__ T shuffle(T value, int source, int width = warp_lanes) {
  return __shfl_sync(all_lanes, value, source, width);
}
template <class T>
__device__ T shuffle_xor(T value, int lane_mask, int width = warp_lanes) {
  return __shfl_xor_sync(all_lanes, value, lane_mask, width);
}
template <class T>
__device__ T shuffle_up(T value, unsigned distance, int width = warp_lanes) {
  return __shfl_up_sync(all_lanes, value, distance, width);
}
#endif

/// Position of the thread in its warp and of its warp in a one-dimensional block.
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % warp_lanes; }
__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / warp_lanes; }

/// Mask of the lanes before this one: `count_bits(lanes_where(x) & lanes_before())` ranks the lanes that voted.
__device__ inline LaneMask lanes_before() { return (LaneMask{1} << lane_index()) - 1; }

/// Whether any lane votes yes.
__device__ inline bool any_lane(bool vote) { return lanes_where(vote) != 0; }

/// Sum over each group of `width` lanes (a power of two), known to all of them. The order of additions is fixed.
template <class T>
__device__ T warp_sum(T value, int width = warp_lanes) {
  for (int distance = width / 2; distance > 0; distance /= 2) value += shuffle_xor(value, distance, width);
  return value;
}

/// Sum of 32-bit numbers over the warp: one instruction where there is one.
__device__ inline int warp_sum(int value) {
#if RAGGEDMLA_GPU_IS_HIP
  return warp_sum<int>(value, warp_lanes);
#else
  return __reduce_add_sync(all_lanes, value);
#endif
}

/// Sum over this lane and all lanes before it.
template <class T>
__device__ T warp_inclusive_sum(T value) {
  for (int distance = 1; distance < warp_lanes; distance *= 2) {
    const T before = shuffle_up(value, static_cast<unsigned>(distance));
    if (lane_index() >= distance) value += before;
  }
  return value;
}

}  // namespace raggedmla::gpu
