// AMX: the processor's matrix unit, beside AVX-512 with bf16. Eight tile registers of 16 rows x 64 bytes; one
// instruction multiplies [16][32] bf16 by [32][16] bf16, the latter in pairs of rows, and adds to [16][16] fp32.
//
// The instruction takes subnormal inputs as 0, as the bf16 dot product does. It is spelt in assembly because GCC 12's
// intrinsics do not say that they read memory. Without compiler support for it (tests on other processors) the tiles
// are arrays.
#pragma once

#include "attention/cpu/isa_avx512bf16.hpp"

namespace raggedmla::cpu {
namespace {

struct TileSizes : Avx512Bf16 {
  static constexpr int tiles = 8;
  static constexpr int side = 16;        // rows of a tile, and columns of sums
  static constexpr int tile_bytes = 64;  // of a row
};

#if defined(__AMX_BF16__)
struct MatrixUnit : TileSizes {
  /// Before a thread's first use of tiles: the first `count` tiles have `rows` rows, the others all.
  static void configure(int count, int rows) {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, unused[14] = {};
      std::uint16_t bytes[16] = {};
      std::uint8_t rows[16] = {};
    } sizes;
    for (int i = 0; i < tiles; ++i) {
      sizes.bytes[i] = tile_bytes;
      sizes.rows[i] = static_cast<std::uint8_t>(i < count ? rows : side);
    }
    asm volatile("ldtilecfg %0" ::"m"(sizes));
  }
  /// After the last: the operating system need not save the tiles any more.
  static void release() { asm volatile("tilerelease"); }

  template <int tile>
  static void zero_tile() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  /// Rows `stride` bytes apart.
  template <int tile>
  static void load_tile(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  static void store_tile(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
  /// sum += a b; three different tiles.
  template <int sum, int a, int b>
  static void multiply_add_tiles() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
};
using Tiles = MatrixUnit;
#else
struct EmulatedTiles : TileSizes {
  struct Tile {
    int rows;
    alignas(64) std::uint8_t bytes[side][tile_bytes];
  };
  static Tile& tile(int i) {
    static thread_local Tile all[tiles];
    return all[i];
  }
  static void configure(int count, int rows) {
    for (int i = 0; i < tiles; ++i) tile(i) = Tile{i < count ? rows : side, {}};
  }
  static void release() {}

  template <int n>
  static void zero_tile() {
    __builtin_memset(tile(n).bytes, 0, sizeof tile(n).bytes);
  }
  template <int n>
  static void load_tile(const void* from, std::int64_t stride) {
    zero_tile<n>();
    for (int i = 0; i < tile(n).rows; ++i) {
      __builtin_memcpy(tile(n).bytes[i], static_cast<const char*>(from) + i * stride, tile_bytes);
    }
  }
  template <int n>
  static void store_tile(void* to, std::int64_t stride) {
    for (int i = 0; i < tile(n).rows; ++i) {
      __builtin_memcpy(static_cast<char*>(to) + i * stride, tile(n).bytes[i], tile_bytes);
    }
  }
  template <int sum, int a, int b>
  static void multiply_add_tiles() {
    const auto pair = [](int n, int row, int i) {
      return reinterpret_cast<const Element*>(tile(n).bytes[row]) + pack * i;
    };
    for (int i = 0; i < tile(sum).rows; ++i) {
      float* sums = reinterpret_cast<float*>(tile(sum).bytes[i]);
      Vector row = load(sums);
      for (int k = 0; k < side; ++k)
        row = multiply_add(broadcast_operand(pair(a, i, k)), load_operand(pair(b, k, 0)), row);
      store(sums, row);
    }
  }
};
using Tiles = EmulatedTiles;
#endif

struct Amx : Tiles {
  /// Row i becomes column i.
  static void transpose(Vector (&v)[16]) {
    const auto quarters = []<int chosen>(Vector a, Vector b) { return _mm512_shuffle_f32x4(a, b, chosen); };
    Vector pairs[16];
    for (int i = 0; i < 16; i += 2) {
      pairs[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
      pairs[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    // Quarter j of v[4 * i + k]: rows 4 * i to 4 * i + 3 of column 4 * j + k.
    for (int i = 0; i < 16; i += 4) {
      for (int k = 0; k < 2; ++k) {
        const __m512d a = _mm512_castps_pd(pairs[i + k]), b = _mm512_castps_pd(pairs[i + k + 2]);
        v[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        v[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
      }
    }
    for (int k = 0; k < 4; ++k) {
      const Vector low_01 = quarters.template operator()<0x44>(v[k], v[4 + k]);
      const Vector low_23 = quarters.template operator()<0x44>(v[8 + k], v[12 + k]);
      const Vector high_01 = quarters.template operator()<0xEE>(v[k], v[4 + k]);
      const Vector high_23 = quarters.template operator()<0xEE>(v[8 + k], v[12 + k]);
      v[k] = quarters.template operator()<0x88>(low_01, low_23);
      v[4 + k] = quarters.template operator()<0xDD>(low_01, low_23);
      v[8 + k] = quarters.template operator()<0x88>(high_01, high_23);
      v[12 + k] = quarters.template operator()<0xDD>(high_01, high_23);
    }
  }
};

}  // namespace
}  // namespace raggedmla::cpu
