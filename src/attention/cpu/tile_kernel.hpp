// What an instruction set provides to the CPU backend: attention of a few heads over one tile of rows at a time.
//
// Everything here is plain data and function pointers. The files that implement it are compiled for one instruction set
// each and must share no inline function with the rest of the library: the linker keeps one copy of such a function,
// and it could be the one that an older processor cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv_cache/row_store.hpp"

namespace raggedmla::cpu {

/// Rows per tile: a panel of 64 rows of 2 KiB stays in a 256 KiB second-level cache.
inline constexpr int tile_rows = 64;
/// Most heads that share a gathered tile: their queries and outputs (2 x 128 KiB) must stay in cache beside it.
inline constexpr int most_heads = 64;

/// Up to 64 selected rows, in the caller's memory. Invalid entries of the lists never get here.
struct Tile {
  int count = 0;
  const std::uint8_t* rows[tile_rows];
  const std::uint8_t* scales[tile_rows];  // fp8 rows only
  StoreKind kinds[tile_rows];
};

/// Running softmax of a head: sum_i exp(z_i - maximum) and the rows weighted alike.
struct HeadStates {
  float* out;      // [heads, out_stride], not divided by the sum
  float* maximum;  // -inf: no row so far
  float* sum;
  std::int64_t out_stride;
};

/// Reads an fp8 row that holds NaN codes or extreme scales, by the definition.
using ReadFp8Row = void (*)(const std::uint8_t* row, const std::uint8_t* scales, StoreKind kind, float* channels);

struct TileKernel {
  const char* name;
  /// Heads are worked on in blocks of this size; the last block is padded.
  int head_block;
  /// Scratch of one thread that works on up to `heads` heads.
  std::size_t (*scratch_bytes)(int heads);
  /// Takes the queries of `heads` heads (bf16 bits) and forgets all rows.
  void (*begin)(std::byte* scratch, int heads, const std::uint16_t* q, std::int64_t stride_head);
  /// Adds a tile. `next` is only prefetched (may be empty).
  void (*add_tile)(std::byte* scratch, int heads, const Tile& tile, const Tile& next, float scale, ReadFp8Row read);
  HeadStates (*states)(std::byte* scratch, int heads);
  /// target[0 .. channels) = values * factor, as f32 or rounded to bf16.
  void (*store)(void* target, bool as_f32, const float* values, float factor, int channels);
  /// After a thread's last unit of work: frees the registers that begin() set up.
  void (*leave_thread)();
};

extern const TileKernel portable_kernel;
extern const TileKernel avx2_kernel;
extern const TileKernel avx512_kernel;
extern const TileKernel avx512bf16_kernel;
extern const TileKernel amx_kernel;

}  // namespace raggedmla::cpu
