// What the three kinds of warpgroup of the query tile kernel share: sizes, the ring of row tiles, the exchange of
// probabilities, and who signals what.
#pragma once

#include "attention/problem.hpp"
#include "attention/sm90/query_tile_call.cuh"
#include "attention/sm90/ring.cuh"
#include "gpu/barrier.cuh"
#include "gpu/bulk_copy.cuh"
#include "gpu/fast_math.cuh"
#include "gpu/warp.cuh"

namespace raggedmla::gpu::sm90 {

inline constexpr int tile_rows = 64;                      // cache rows at a time
inline constexpr int narrow_rows = 16;                    // a tile with no more rows than this costs a quarter
inline constexpr int query_rows = 64;                     // (query, head) pairs of a block: the M of its products
inline constexpr int stages = 3;                          // row tiles in shared memory
inline constexpr int turns = 4;                           // entries of the ring that the score warpgroup may be ahead
inline constexpr int block_columns = 64;                  // columns of one swizzled block (128 bytes a row)
inline constexpr int block_bytes = tile_rows * 128;       // 8 KiB
inline constexpr int tile_bytes = tile_rows * width * 2;  // 64 KiB
inline constexpr int q_register_blocks = 6;               // column blocks of q that stay in registers, 16 each a thread
inline constexpr int q_shared_blocks = width / block_columns - q_register_blocks;

// Registers by role. 3 * 160 + 32 = 512: all that four warpgroups may have.
inline constexpr int product_registers = 160, load_registers = 32;

/// What stands in a stage.
struct StageInfo {
  TileKind kind;
  int rows;  // 1 to 64
};

/// Which queries of the item select which rows of a tile.
struct Selections {
  // Bit j of queries[g]: query g selects row j at least once. 16 rows a word, so that a loading warp writes its own.
  alignas(8) std::uint16_t queries[max_queries][tile_rows / 16];
  // Of the same 16 rows: `skips` if one of queries_per_item queries does not select one of them (rows behind the tile's
  // last and queries behind the call's last count), `repeats` if one selects a row more than once; only then is
  // `counts` valid.
  alignas(4) std::uint8_t marks[tile_rows / 16];
  std::uint32_t counts[tile_rows];  // how often query g selects the row: nibble g

  static constexpr std::uint8_t skips = 1, repeats = 2;
  /// The marks of all rows at once.
  __device__ std::uint32_t all_marks() const { return *reinterpret_cast<const std::uint32_t*>(marks); }
};
inline constexpr std::uint32_t any_repeats = Selections::repeats * 0x01010101u;

/// Scores of one tile as the output warpgroups take them.
struct Exchange {
  float row_factor[query_rows];     // what the output so far is multiplied with: before the tile, or before the store
  std::uint64_t nonfinite_rows[4];  // by score warp: tile rows without a finite score; only where some query skips rows
  std::uint32_t rescale[4];         // by score warp: whether row_factor is anything but 1
};

/// A query's rows of one range segment: [begin, end) of the request's logical rows, or of the source's if it is flat.
struct QueryRange {
  std::int64_t begin, end;
  int request;
};
inline constexpr int flat_rows = -1;  // as a request: the rows are those of the source

struct SharedMemory {
  alignas(1024) unsigned char tiles[stages][tile_bytes];
  alignas(1024) unsigned char q[q_shared_blocks * block_bytes];
  alignas(1024) unsigned char probabilities[2][block_bytes];
  Selections selections[stages];
  StageInfo info[stages];
  Exchange exchange[2];
  float largest[query_rows];              // by row of products: selected score of the item, base 2; `with_largest` only
  float sink[query_rows];                 // by row of products, base 2; the same for every item
  std::uint8_t query_of_row[query_rows];  // likewise: row m is head m % H of query m / H; unused rows have 255
  Barrier tile_full[stages], tile_empty[stages];
  Barrier scores_full[2], scores_empty[2];
  Barrier multiplied[turns];
  Barrier q_taken[turns];
};
static_assert(sizeof(SharedMemory) <= 232448, "a block has 227 KiB");

// Arrivals that complete a phase: every loading thread, once its copies have landed, and the one that announces; every
// warp that reads.
inline constexpr int tile_full_arrivals = group_threads + 1, tile_empty_arrivals = 12;
inline constexpr int scores_full_arrivals = 4, scores_empty_arrivals = 8;
// The matrix units belong to the first product of the next tile before the second product of this one: `multiplied`
// hears of every entry of the ring when its first product is done (or it has none).
inline constexpr int multiplied_arrivals = 4;
// `q_taken` hears, item by item, that the score warpgroup has q out of its stage, through which the output of the item
// before then leaves. `turns` of them: the score warpgroup may be several items ahead if these have no rows.
inline constexpr int q_taken_arrivals = 4;

// Ids of barriers within one warpgroup (0 is __syncthreads).
inline constexpr int score_barrier = 1, output_barrier = 2;  // and 3: one for each half

/// Byte offset of the 16-byte chunk `chunk` (0 to 7) of row `row` in a swizzled block.
__device__ inline std::uint32_t swizzled(int row, int chunk) {
  return static_cast<std::uint32_t>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

/// The items of a block: items_begin(call), then every gridDim.x-th before call.last_item.
__device__ inline int items_begin(const QueryTileCall& call) { return call.first_item + static_cast<int>(blockIdx.x); }
__device__ inline int next_item(int item) { return item + static_cast<int>(gridDim.x); }

/// Queries of work item `item`.
__device__ inline int queries_of(const QueryTileCall& call, int item) {
  const std::int64_t left = call.problem.tokens - std::int64_t{item} * call.queries_per_item;
  return left < call.queries_per_item ? static_cast<int>(left) : call.queries_per_item;
}

}  // namespace raggedmla::gpu::sm90
