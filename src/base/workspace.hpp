// How operators share the caller's scratch memory.
//
//     | counter area, 64 KiB | scratch of the operator, 256-byte aligned ... |
//
// The counter area is zero between operators: initialize_workspace zeroes it once, and an operator that counts there
// (totals that blocks leave for each other, arrivals of a list's parts) leaves it zero. All other scratch may hold
// anything at any time, which is why it never overlaps the counters, not even in operators that need none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "raggedmla/tensor.hpp"

namespace raggedmla {

/// 16384 counters: a few per multiprocessor for a split list, or one for every pair of 181 blocks (src/row_lists).
inline constexpr std::size_t counter_area_bytes = std::size_t{64} << 10;

/// Bytes to ask the caller for when an operator needs `scratch` bytes, or counters only.
constexpr std::size_t workspace_bytes_for(std::size_t scratch) { return counter_area_bytes + scratch; }

inline std::uint32_t* workspace_counters(const Workspace& workspace) {
  return static_cast<std::uint32_t*>(workspace.data);
}
inline std::byte* workspace_scratch(const Workspace& workspace) {
  return static_cast<std::byte*>(workspace.data) + counter_area_bytes;
}

}  // namespace raggedmla
