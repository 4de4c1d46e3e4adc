// What the Hopper kernels share: sizes of a row, places in a ring of stages, delays for debug builds.
#pragma once

#include <cstdint>

#include "gpu/fast_math.cuh"
#include "gpu/runtime.hpp"
#include "gpu/warp.cuh"

namespace raggedmla::gpu::sm90 {

inline constexpr int width = 512;          // channels of q, of a row and of the output
inline constexpr int group_threads = 128;  // of a warpgroup

enum class TileKind : int {
  rows,     // cache rows
  queries,  // q of the next work item; the one before it is complete
  end,      // no further item
};

/// A place in a ring of `size` and the parity of its current pass.
template <int size>
struct RingPosition {
  int index = 0;
  std::uint32_t parity = 0;
  __device__ void advance() {
    if (++index == size) {
      index = 0;
      parity ^= 1;
    }
  }
};

/// In a debug build: holds this warp up for a pseudo-random while, so that an order that is not enforced shows.
__device__ inline void random_delay([[maybe_unused]] int where) {
#if defined(RAGGEDMLA_RANDOM_DELAYS)
  std::uint32_t x = static_cast<std::uint32_t>(clock64()) * 2654435761u + static_cast<std::uint32_t>(where) * 40503u +
                    warp_index() * 977u + blockIdx.x * 131u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  if ((x & 3) == 0) __nanosleep(x >> 20);
#endif
}

}  // namespace raggedmla::gpu::sm90
