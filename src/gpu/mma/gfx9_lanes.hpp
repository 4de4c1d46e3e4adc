// Which lane holds what in the wave-wide bf16 product 16x16x16 of CDNA (v_mfma_f32_16x16x16_bf16_1k): lane l holds
// A[l % 16][4 * (l / 16) + i], B[4 * (l / 16) + i][l % 16] and C[4 * (l / 16) + i][l % 16] in element i.
// Plain C++, so that tests check it on a CPU by simulating the 64 lanes.
#pragma once

#include "gpu/row_tile.hpp"

namespace raggedmla::gpu::mma::gfx9 {

inline constexpr int lanes = 64;
inline constexpr int n = 16;               // columns of one product
inline constexpr int value_fragments = 4;  // B fragments that one value load fills

// A and B: row of A or column of B, and the index of the contraction.
constexpr int outer_of(int lane) { return lane % 16; }
constexpr int inner_of(int lane, int element) { return 4 * (lane / 16) + element; }

// C, 16 x 16: four elements a lane, of four rows.
inline constexpr int rows_per_lane = 4;
inline constexpr int lanes_per_row = 16;  // neighbours
constexpr int row_slot(int element) { return element; }
constexpr int row_of(int lane, int slot) { return 4 * (lane / 16) + slot; }
constexpr int column_of(int lane, int) { return lane % 16; }

// Channels of queries and keys: a lane reads 8 neighbouring channels at once and uses the first four in the first
// product and the rest in the second. The contraction may run in any order as long as both sides agree.
constexpr int channel_of_inner(int lane, int step, int element) { return 8 * (lane / 16) + 4 * step + element; }

// Values: a lane reads 4 neighbouring channels of each of its 4 rows and spreads them over 4 fragments, so that column
// c of fragment f is channel 4 * c + f of the load's 64.
constexpr int value_channel(int column, int fragment) { return 4 * column + fragment; }

/// Two neighbouring output channels in the C fragments of one value load.
struct ChannelPair {
  int fragment0, element0, fragment1, element1;
};
inline constexpr int channel_pairs = 8;
constexpr ChannelPair channel_pair(int p) { return {2 * (p % 2), p / 2, 2 * (p % 2) + 1, p / 2}; }
/// The first of them, of the load's 64 columns.
constexpr int channel_of(int lane, int p) { return value_channel(lane % 16, 2 * (p % 2)); }

// Where a lane's address stands for 16 query rows, n key rows, 16 value rows of a row_tile.
constexpr std::uint32_t query_offset(int lane) {
  return row_tile::offset(outer_of(lane), channel_of_inner(lane, 0, 0) / 8);
}
constexpr std::uint32_t key_offset(int lane) { return query_offset(lane); }
constexpr std::uint32_t value_offset(int lane) {
  const int channel = value_channel(outer_of(lane), 0);
  return row_tile::offset(inner_of(lane, 0), channel / 8) + static_cast<std::uint32_t>(channel % 8) * 2;
}

}  // namespace raggedmla::gpu::mma::gfx9
