// The lane maps of the CDNA matrix vocabulary, checked by simulating the 64 lanes of a wave: what each lane would read
// from shared memory, the product as the hardware defines it, and where each lane finds the result.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "gpu/mma/gfx9_lanes.hpp"
#include "gpu/mma/sm80_lanes.hpp"

namespace raggedmla::test {

namespace {

namespace gfx9 = gpu::mma::gfx9;
namespace row_tile = gpu::row_tile;

constexpr int lanes = 64, channels = 512;
using Lanes = std::array<std::array<int, 4>, lanes>;

/// v_mfma_f32_16x16x16_bf16_1k as documented: lane l holds A[l % 16][4 * (l / 16) + i], B[4 * (l / 16) + i][l % 16],
/// C[4 * (l / 16) + i][l % 16]. Whole numbers stand for bf16 and fp32.
void mfma(Lanes& c, const Lanes& a, const Lanes& b) {
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) {
        sum += a[static_cast<std::size_t>(k / 4 * 16 + row)][static_cast<std::size_t>(k % 4)] *
               b[static_cast<std::size_t>(k / 4 * 16 + column)][static_cast<std::size_t>(k % 4)];
      }
      c[static_cast<std::size_t>(row / 4 * 16 + column)][static_cast<std::size_t>(row % 4)] += sum;
    }
  }
}

/// A row_tile: 2-byte channels at their swizzled places.
class Tile {
 public:
  explicit Tile(int rows, int seed) : memory_(static_cast<std::size_t>(rows * channels)), rows_(rows) {
    for (int row = 0; row < rows; ++row) {
      for (int c = 0; c < channels; ++c) {
        memory_[(row_tile::offset(row, c / 8) + static_cast<std::uint32_t>(c % 8 * 2)) / 2] = value(row, c, seed);
      }
    }
    seed_ = seed;
  }
  int at(std::uint32_t byte) const { return memory_.at(byte / 2); }
  int operator()(int row, int channel) const { return value(row, channel, seed_); }
  int rows() const { return rows_; }

 private:
  static int value(int row, int channel, int seed) { return (row * 31 + channel * 17 + seed * 7) % 13 - 6; }
  std::vector<int> memory_;
  int rows_, seed_ = 0;
};

/// Half `half` of the 16 bytes that lanes read for queries and keys.
Lanes contracted_rows(const Tile& tile, int step, int half) {
  Lanes fragment{};
  for (int lane = 0; lane < lanes; ++lane) {
    const std::uint32_t address = row_tile::advance(gfx9::query_offset(lane), 4 * step);
    for (int i = 0; i < 4; ++i) {
      fragment[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)] =
          tile.at(address + static_cast<std::uint32_t>(8 * half + 2 * i));
    }
  }
  return fragment;
}

TEST(MatrixLanes, SwizzleKeepsEveryChunkOnce) {
  std::vector<int> seen(16 * row_tile::chunks);
  for (int row = 0; row < 16; ++row) {
    for (int chunk = 0; chunk < row_tile::chunks; ++chunk) {
      ++seen.at(row_tile::offset(row, chunk) / 16);
      EXPECT_EQ(row_tile::offset(row, chunk), row_tile::advance(row_tile::offset(row, chunk % 4), chunk / 4 * 4));
      EXPECT_EQ(row_tile::offset(row, chunk), row_tile::next_row(row_tile::offset(row / 8 * 8, chunk), row % 8));
    }
  }
  for (const int count : seen) EXPECT_EQ(count, 1);
}

TEST(MatrixLanes, CdnaScores) {
  const Tile q(16, 1), keys(16, 2);
  Lanes scores{};
  for (int step = 0; step < channels / 32; ++step) {
    for (int half = 0; half < 2; ++half) {
      mfma(scores, contracted_rows(q, step, half), contracted_rows(keys, step, half));
    }
  }
  for (int lane = 0; lane < lanes; ++lane) {
    for (int e = 0; e < 4; ++e) {
      const int head = gfx9::row_of(lane, gfx9::row_slot(e)), row = gfx9::column_of(lane, e);
      int expected = 0;
      for (int c = 0; c < channels; ++c) expected += q(head, c) * keys(row, c);
      EXPECT_EQ(scores[static_cast<std::size_t>(lane)][static_cast<std::size_t>(e)], expected) << lane << " " << e;
    }
  }
}

TEST(MatrixLanes, CdnaValues) {
  const Tile values(16, 3);
  const auto probability = [](int head, int row) { return (head * 5 + row * 3) % 7 - 3; };
  Lanes p{};
  for (int lane = 0; lane < lanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      p[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)] =
          probability(gfx9::outer_of(lane), gfx9::inner_of(lane, i));
    }
  }
  for (int block = 0; block < channels / 64; ++block) {
    std::array<Lanes, gfx9::value_fragments> out{};
    for (int f = 0; f < gfx9::value_fragments; ++f) {
      Lanes v{};
      for (int lane = 0; lane < lanes; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t row = row_tile::next_row(gfx9::value_offset(lane), i);
          v[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)] =
              values.at(row_tile::advance(row, 8 * block) + static_cast<std::uint32_t>(2 * f));
        }
      }
      mfma(out[static_cast<std::size_t>(f)], p, v);
    }
    const auto expected = [&](int head, int channel) {
      int sum = 0;
      for (int row = 0; row < 16; ++row) sum += probability(head, row) * values(row, channel);
      return sum;
    };
    for (int lane = 0; lane < lanes; ++lane) {
      for (int pair = 0; pair < gfx9::channel_pairs; ++pair) {
        const gfx9::ChannelPair at = gfx9::channel_pair(pair);
        const int head = gfx9::row_of(lane, gfx9::row_slot(at.element0));
        const int channel = 64 * block + gfx9::channel_of(lane, pair);
        const auto element = [&](int fragment, int e) {
          return out[static_cast<std::size_t>(fragment)][static_cast<std::size_t>(lane)][static_cast<std::size_t>(e)];
        };
        EXPECT_EQ(gfx9::row_slot(at.element0), gfx9::row_slot(at.element1));
        EXPECT_EQ(element(at.fragment0, at.element0), expected(head, channel));
        EXPECT_EQ(element(at.fragment1, at.element1), expected(head, channel + 1));
      }
    }
  }
}

/// Every element of the output fragments is stored once.
template <class Pair, class Channel>
void expect_all_elements_once(int fragments, int pairs, Pair pair_at, Channel channel_of, int wave, int columns) {
  std::vector<int> seen(static_cast<std::size_t>(fragments * 4));
  std::vector<int> channels_seen(static_cast<std::size_t>(columns));
  for (int p = 0; p < pairs; ++p) {
    const auto at = pair_at(p);
    ++seen.at(static_cast<std::size_t>(at.fragment0 * 4 + at.element0));
    ++seen.at(static_cast<std::size_t>(at.fragment1 * 4 + at.element1));
    for (int lane = 0; lane < wave; ++lane) {
      ++channels_seen.at(static_cast<std::size_t>(channel_of(lane, p)));
      ++channels_seen.at(static_cast<std::size_t>(channel_of(lane, p) + 1));
    }
  }
  for (const int count : seen) EXPECT_EQ(count, 1);
  for (const int count : channels_seen) EXPECT_EQ(count, 16);  // heads
}

TEST(MatrixLanes, OutputPairsCoverTheFragments) {
  namespace sm80 = gpu::mma::sm80;
  expect_all_elements_once(sm80::value_fragments, sm80::channel_pairs, sm80::channel_pair, sm80::channel_of, 32, 16);
  expect_all_elements_once(gfx9::value_fragments, gfx9::channel_pairs, gfx9::channel_pair, gfx9::channel_of, 64, 64);
}

}  // namespace

}  // namespace raggedmla::test
