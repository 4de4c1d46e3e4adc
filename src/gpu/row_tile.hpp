// Where a channel of a row stands in shared memory. Plain C++, so that tests check lane maps on a CPU.
#pragma once

#include <cstdint>

namespace raggedmla::gpu {

/// A tile of rows of 512 bf16 channels. 16-byte chunk c of row r stands at chunk c ^ (r % 8), so that eight rows read
/// at one chunk, as matrix loads do, touch all banks once. Tiles start on multiples of 1 KiB.
namespace row_tile {
inline constexpr int row_bytes = 1024;
inline constexpr int chunks = 64;  // of 16 bytes, 8 channels

constexpr std::uint32_t offset(int row, int chunk) {
  return static_cast<std::uint32_t>(row * row_bytes + ((chunk ^ (row & 7)) << 4));
}
/// From a lane's address in chunks [0, step) of a row to the same place `chunk` chunks further (a multiple of `step`):
/// the swizzle is an exclusive or, so the lane's own bits need not be known.
constexpr std::uint32_t advance(std::uint32_t address, int chunk) {
  return (address ^ static_cast<std::uint32_t>((chunk & 7) << 4)) + static_cast<std::uint32_t>((chunk >> 3) * 128);
}
/// The same chunk `rows` rows further, from a row that is a multiple of the next power of two after `rows`.
constexpr std::uint32_t next_row(std::uint32_t address, int rows) {
  return (address + static_cast<std::uint32_t>(rows * row_bytes)) ^ static_cast<std::uint32_t>((rows & 7) << 4);
}
}  // namespace row_tile

}  // namespace raggedmla::gpu
