// Which lane holds what in the warp-wide bf16 product m16n8k16 of sm_80 and newer (PTX ISA, "mma.m16n8k16").
// Plain C++, so that tests check it on a CPU.
#pragma once

#include "gpu/row_tile.hpp"

namespace raggedmla::gpu::mma::sm80 {

inline constexpr int lanes = 32;
inline constexpr int n = 8;                // columns of one product
inline constexpr int value_fragments = 2;  // B fragments that one value load fills

// C, 16 x 8: four elements a lane, of two rows.
inline constexpr int rows_per_lane = 2;
inline constexpr int lanes_per_row = 4;  // neighbours
constexpr int row_slot(int element) { return element / 2; }
constexpr int row_of(int lane, int slot) { return lane / 4 + 8 * slot; }
constexpr int column_of(int lane, int element) { return 2 * (lane % 4) + element % 2; }

/// Two neighbouring output channels in the C fragments of one value load.
struct ChannelPair {
  int fragment0, element0, fragment1, element1;
};
inline constexpr int channel_pairs = 4;
constexpr ChannelPair channel_pair(int p) { return {p / 2, 2 * (p % 2), p / 2, 2 * (p % 2) + 1}; }
/// The first of them, of the load's 16 columns.
constexpr int channel_of(int lane, int p) { return 8 * (p / 2) + 2 * (lane % 4); }

// Where a lane's address stands for 16 query rows, n key rows, 16 value rows of a row_tile: ldmatrix takes the
// addresses of the rows of four 8 x 8 matrices from 8 lanes each.
constexpr std::uint32_t query_offset(int lane) { return row_tile::offset(lane % 16, lane / 16); }
constexpr std::uint32_t key_offset(int lane) { return row_tile::offset(lane % 8, lane / 8); }
constexpr std::uint32_t value_offset(int lane) { return row_tile::offset(lane % 16, lane / 16); }

}  // namespace raggedmla::gpu::mma::sm80
