// dequantize_rows, gather_rows, unpack_rows: rows at slots -> bf16 rows. Memory traffic is all there is: a thread reads
// 8 codes and their scale (or 16 bytes of bf16) and writes 16 bytes; four rows are in flight per team before the first
// is stored.
#include "gpu/dependent_launch.cuh"
#include "gpu/fp8.cuh"
#include "gpu/preload.hpp"
#include "kv_cache/backends.hpp"
#include "kv_cache/row_blocks.cuh"

namespace raggedmla::gpu {

namespace {

constexpr int teams = 4;
constexpr int block_threads = teams * team_threads;
constexpr int rows_in_flight = 4;  // per team
constexpr int blocks_per_multiprocessor = 8;

/// A row as found: where its bytes are and where they go.
struct FoundRow {
  const std::uint8_t* row;     // null: the row is 0
  const std::uint8_t* scales;  // fp8 only
  std::uint8_t* out;           // null: nothing is written
};

/// What one thread holds of a row until it is stored.
struct Chunk {
  uint4 bytes;  // 8 fp8 codes in x and y, or 8 bf16
  std::uint8_t scale;
};

template <StoreKind kind>
__device__ Chunk load_chunk(const FoundRow& found, int lane) {
  Chunk chunk{make_uint4(0, 0, 0, 0), 127};
  if (found.row == nullptr) return chunk;
  if (kind == StoreKind::bf16) {
    chunk.bytes = *reinterpret_cast<const uint4*>(found.row + lane * 16);
  } else if (lane < nope_threads) {
    const uint2 codes = *reinterpret_cast<const uint2*>(found.row + lane * chunk_channels);
    chunk.bytes.x = codes.x;
    chunk.bytes.y = codes.y;
    chunk.scale = found.scales[lane / group_threads];
  } else {
    chunk.bytes = *reinterpret_cast<const uint4*>(found.row + v4_row.nope_width + (lane - nope_threads) * 16);
  }
  return chunk;
}

template <StoreKind kind>
__device__ uint4 convert_chunk(const Chunk& chunk, int lane) {
  if (kind == StoreKind::bf16 || lane >= nope_threads) return chunk.bytes;
  constexpr Fp8Encoding encoding = kind == StoreKind::fp8_ocp ? Fp8Encoding::ocp : Fp8Encoding::fnuz;
  const std::uint32_t codes[2] = {chunk.bytes.x, chunk.bytes.y};
  std::uint32_t channels[2][2];
  Fp8Decoder<encoding>::decode(codes, chunk.scale, channels);
  return make_uint4(channels[0][0], channels[0][1], channels[1][0], channels[1][1]);
}

template <StoreKind kind, class Problem>
__global__ void __launch_bounds__(block_threads)
    read_rows(const __grid_constant__ Problem problem, int rows_per_block) {
  __shared__ FoundRow found[most_rows_per_block];
  wait_for_kernel_in_front();
  const int lane = team_lane();
  const std::int64_t tasks = problem.tasks();
  const std::int64_t step = std::int64_t{gridDim.x} * rows_per_block;
  for (std::int64_t begin = std::int64_t{blockIdx.x} * rows_per_block; begin < tasks; begin += step) {
    const int rows = static_cast<int>(tasks - begin < rows_per_block ? tasks - begin : rows_per_block);
    const int r = static_cast<int>(threadIdx.x);
    if (r < rows) {
      const RowTask task = problem.task(begin + r);
      const RowStore& source = problem.source_of(begin + r);
      const bool there = task.slot >= 0;
      found[r].row = there ? source.row(task.slot) : nullptr;
      found[r].scales = there ? source.scales(task.slot) : nullptr;
      found[r].out = task.out;
    }
    __syncthreads();
    for (int base = team_index(); base < rows; base += teams * rows_in_flight) {
      Chunk chunks[rows_in_flight];
#pragma unroll
      for (int i = 0; i < rows_in_flight; ++i) {
        const int row = base + i * teams;
        if (row < rows) chunks[i] = load_chunk<kind>(found[row], lane);
      }
#pragma unroll
      for (int i = 0; i < rows_in_flight; ++i) {
        const int row = base + i * teams;
        if (row >= rows || found[row].out == nullptr) continue;
        reinterpret_cast<uint4*>(found[row].out)[lane] = convert_chunk<kind>(chunks[i], lane);
      }
    }
    __syncthreads();  // before `found` is written again
  }
}

template <class Problem>
using ReadKernel = void (*)(const Problem, int);

template <class Problem>
ReadKernel<Problem> kernel_for(StoreKind kind) {
  switch (kind) {
    case StoreKind::bf16: return read_rows<StoreKind::bf16, Problem>;
    case StoreKind::fp8_ocp: return read_rows<StoreKind::fp8_ocp, Problem>;
    case StoreKind::fp8_fnuz: break;
  }
  return read_rows<StoreKind::fp8_fnuz, Problem>;
}

template <class Problem>
void launch_read(const Problem& problem, int device, Stream stream) {
  const RowGrid grid =
      row_grid(problem.tasks(), teams, require_device(device).multiprocessors, blocks_per_multiprocessor);
  const DeviceScope scope(device);
  launch_dependent(kernel_for<Problem>(problem.source_of(0).kind), dim3(grid.blocks), dim3(block_threads), 0, stream,
                   problem, grid.rows_per_block);
}

}  // namespace

void dequantize_rows(const DequantizeProblem& problem, int device, Stream stream) {
  launch_read(problem, device, stream);
}

void gather_rows(const GatherProblem& problem, int device, Stream stream) { launch_read(problem, device, stream); }

void unpack_rows(const UnpackProblem& problem, int device, Stream stream) {
  if (problem.tasks() > 0) launch_read(problem, device, stream);
}

void preload_read_rows() {
  for (const StoreKind kind : {StoreKind::bf16, StoreKind::fp8_ocp, StoreKind::fp8_fnuz}) {
    load_kernel(kernel_for<DequantizeProblem>(kind));
    load_kernel(kernel_for<GatherProblem>(kind));
    load_kernel(kernel_for<UnpackProblem>(kind));
  }
}

}  // namespace raggedmla::gpu
