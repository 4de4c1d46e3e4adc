// quantize_rows: bf16 rows -> fp8 pages at slots. A team of 64 threads takes a row, 8 channels each; the largest
// magnitude of a group goes around its eight lanes. Of several rows for one slot the last is stored: a block looks
// through the slots behind its own and drops the rows whose slot comes again.
#include "gpu/fp8.cuh"
#include "gpu/preload.hpp"
#include "gpu/warp.cuh"
#include "kv_cache/backends.hpp"
#include "kv_cache/row_blocks.cuh"
#include "kv_cache/scale.hpp"

namespace raggedmla::gpu {

namespace {

// Large blocks: each looks through all slots behind its own, so their number counts, and one wave of them must do.
constexpr int teams = 16;
constexpr int block_threads = teams * team_threads;
constexpr int rows_in_flight = 4;  // per team
constexpr int blocks_per_multiprocessor = 1;

/// Where the block's rows go. Rows that a later one replaces are dropped: one pass over the slots behind the block,
/// with a bit map of hashes that tells nearly always that a slot is none of the block's.
struct BlockSlots {
  static constexpr int map_bits = 15;
  static constexpr int map_words = (1 << map_bits) / 32;
  static constexpr int loads_in_flight = 4;

  std::int64_t slot[most_rows_per_block];
  std::uint8_t* row[most_rows_per_block];  // null: nothing to store
  std::uint8_t* scales[most_rows_per_block];
  std::uint32_t map[map_words];

  /// All threads of the block take part; the result is there for all of them.
  __device__ void fill(const QuantizeProblem& problem, std::int64_t begin, int rows) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < map_words; i += block_threads) map[i] = 0;
    __syncthreads();
    if (thread < rows) {
      const std::int64_t own = problem.slots(begin + thread);
      const bool held = problem.cache.holds(own);
      slot[thread] = own;
      row[thread] = held ? problem.cache.row(own) : nullptr;
      scales[thread] = held ? problem.cache.scales(own) : nullptr;
      if (held) atomicOr(&map[hash(own) / 32], 1u << (hash(own) % 32));
    }
    __syncthreads();
    for (std::int64_t next = begin + 1 + thread; next < problem.count; next += block_threads * loads_in_flight) {
      std::int64_t later[loads_in_flight];
#pragma unroll
      for (int i = 0; i < loads_in_flight; ++i) {
        const std::int64_t m = next + i * block_threads;
        later[i] = m < problem.count ? problem.slots(m) : -1;
      }
#pragma unroll
      for (int i = 0; i < loads_in_flight; ++i) drop_replaced(later[i], next + i * block_threads - begin, rows);
    }
    __syncthreads();
  }

 private:
  __device__ static unsigned hash(std::int64_t wanted) {
    return static_cast<std::uint32_t>(wanted) * 0x9E3779B1u >> (32 - map_bits);
  }

  /// Drops the rows before `distance`, counted from the block's first, that go where a later row goes.
  __device__ void drop_replaced(std::int64_t later, std::int64_t distance, int rows) {
    if (!(map[hash(later) / 32] >> (hash(later) % 32) & 1u)) return;
    for (int i = 0; i < rows && i < distance; ++i) {
      if (slot[i] == later) row[i] = nullptr;
    }
  }
};

/// 8 channels -> 8 codes; the lanes of the group agree on its exponent.
template <Fp8Encoding encoding>
__device__ uint2 quantize_chunk(const uint4& channels, ScaleFloor floor, int& exponent) {
  const std::uint32_t pairs[4] = {channels.x, channels.y, channels.z, channels.w};
  std::uint32_t largest =
      largest_magnitudes(largest_magnitudes(pairs[0], pairs[1]), largest_magnitudes(pairs[2], pairs[3]));
  for (int distance = group_threads / 2; distance > 0; distance /= 2) {
    largest = largest_magnitudes(largest, shuffle_xor(largest, distance, group_threads));
  }
  exponent = scale_exponent(max(magnitude_bits(largest), magnitude_bits(largest >> 16)), encoding, floor);
  const float factor = inverse_scale(exponent);
  std::uint32_t codes[4];
  for (int i = 0; i < 4; ++i) {
    codes[i] = encode_fp8x2<encoding>(float_from_bits(pairs[i] << 16) * factor,
                                      float_from_bits(pairs[i] & 0xFFFF0000u) * factor);
  }
  return make_uint2(codes[0] | codes[1] << 16, codes[2] | codes[3] << 16);
}

/// One thread's part of one row. All threads of the team call it, with `row` null for dropped rows too: lanes of a warp
/// exchange their maxima.
template <StoreKind kind>
__device__ void store_chunk(const uint4& channels, ScaleFloor floor, std::uint8_t* row, std::uint8_t* scales,
                            int lane) {
  if constexpr (kind == StoreKind::bf16) {
    if (row != nullptr) reinterpret_cast<uint4*>(row)[lane] = channels;
  } else {
    constexpr Fp8Encoding encoding = kind == StoreKind::fp8_ocp ? Fp8Encoding::ocp : Fp8Encoding::fnuz;
    int exponent;
    const uint2 codes = quantize_chunk<encoding>(channels, floor, exponent);
    if (row == nullptr) return;
    if (lane < nope_threads) {
      *reinterpret_cast<uint2*>(row + lane * chunk_channels) = codes;
    } else {
      *reinterpret_cast<uint4*>(row + v4_row.nope_width + (lane - nope_threads) * 16) = channels;
    }
    if (lane % group_threads == 0) scales[lane / group_threads] = lane < nope_threads ? scale_byte(exponent) : 0;
  }
}

template <StoreKind kind>
__global__ void __launch_bounds__(block_threads) quantize(const QuantizeProblem problem, int rows_per_block) {
  __shared__ BlockSlots slots;
  const int lane = team_lane();
  const std::int64_t step = std::int64_t{gridDim.x} * rows_per_block;
  for (std::int64_t begin = std::int64_t{blockIdx.x} * rows_per_block; begin < problem.count; begin += step) {
    const int rows = static_cast<int>(min(problem.count - begin, std::int64_t{rows_per_block}));
    slots.fill(problem, begin, rows);
    for (int base = team_index(); base < rows; base += teams * rows_in_flight) {
      uint4 channels[rows_in_flight];
#pragma unroll
      for (int i = 0; i < rows_in_flight; ++i) {
        const int row = base + i * teams;
        channels[i] = make_uint4(0, 0, 0, 0);
        if (row >= rows || slots.row[row] == nullptr) continue;
        channels[i] = reinterpret_cast<const uint4*>(problem.rows + (begin + row) * problem.row_stride)[lane];
      }
#pragma unroll
      for (int i = 0; i < rows_in_flight; ++i) {
        const int row = base + i * teams;
        if (row < rows) store_chunk<kind>(channels[i], problem.floor, slots.row[row], slots.scales[row], lane);
      }
    }
    __syncthreads();  // before the slots are filled again
  }
}

using QuantizeKernel = void (*)(const QuantizeProblem, int);

QuantizeKernel kernel_for(StoreKind kind) {
  switch (kind) {
    case StoreKind::bf16: return quantize<StoreKind::bf16>;
    case StoreKind::fp8_ocp: return quantize<StoreKind::fp8_ocp>;
    case StoreKind::fp8_fnuz: break;
  }
  return quantize<StoreKind::fp8_fnuz>;
}

}  // namespace

void quantize_rows(const QuantizeProblem& problem, int device, Stream stream) {
  const RowGrid grid =
      row_grid(problem.count, teams, require_device(device).multiprocessors, blocks_per_multiprocessor);
  const DeviceScope scope(device);
  launch(kernel_for(problem.cache.kind), dim3(grid.blocks), dim3(block_threads), 0, stream, problem,
         grid.rows_per_block);
}

void preload_quantize() {
  for (const StoreKind kind : {StoreKind::bf16, StoreKind::fp8_ocp, StoreKind::fp8_fnuz}) load_kernel(kernel_for(kind));
}

}  // namespace raggedmla::gpu
