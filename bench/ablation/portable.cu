// What three decisions are worth in the portable kernel: how many warps share a tile of 16 heads, whether rows are
// masked again between their arrival and the products, and whether list entries are fetched ahead. The kernel of the
// library is compiled here with each of them undone, checked against the library's shape, and timed in replayed graphs.
//
//     cmake --build build --target raggedmla_ablation && build/bench/ablation/raggedmla_ablation
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "attention/portable_kernel.cuh"

namespace raggedmla::gpu {

namespace {

constexpr TileShape base = cuda_tiles[0];
constexpr TileShape changed(bool eight_warps, bool mask_again, bool fetch_late) {
  TileShape tile = base;
  if (eight_warps) {
    tile.warps = 8;
    tile.row_warps = 2;
    tile.blocks_per_multiprocessor = 2;
  }
  tile.mask_again = mask_again;
  tile.fetch_late = fetch_late;
  return tile;
}

struct Library {
  static constexpr const char* name = "as in the library: 4 warps, one mask, entries fetched ahead";
  static constexpr TileShape shape = base;
};
struct EightWarps {
  static constexpr const char* name = "8 warps";
  static constexpr TileShape shape = changed(true, false, false);
};
struct MaskAgain {
  static constexpr const char* name = "second mask";
  static constexpr TileShape shape = changed(false, true, false);
};
struct FetchLate {
  static constexpr const char* name = "entries fetched when needed";
  static constexpr TileShape shape = changed(false, false, true);
};
struct AllUndone {
  static constexpr const char* name = "all three";
  static constexpr TileShape shape = changed(true, true, true);
};

template <class T>
T* upload(const std::vector<T>& values) {
  void* data = nullptr;
  RAGGEDMLA_GPU_CHECK(cudaMalloc(&data, values.size() * sizeof(T)));
  RAGGEDMLA_GPU_CHECK(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return static_cast<T*>(data);
}

std::vector<std::uint16_t> random_rows(std::size_t rows, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> values(rows * 512);
  for (std::uint16_t& value : values) value = bf16_from_float(normal(random));
  return values;
}

/// Median microseconds of a call, of replays of a graph of four calls.
template <class Tile>
double time_call(const AttentionProblem& problem) {
  constexpr int calls = 4, replays = 15;
  const int bytes = layout_of(Tile::shape).bytes;
  RAGGEDMLA_GPU_CHECK(
      cudaFuncSetAttribute(portable_attention<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaEvent_t begin, end;
  RAGGEDMLA_GPU_CHECK(cudaStreamCreate(&stream));
  RAGGEDMLA_GPU_CHECK(cudaEventCreate(&begin));
  RAGGEDMLA_GPU_CHECK(cudaEventCreate(&end));
  RAGGEDMLA_GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < calls; ++i) {
    launch(portable_attention<Tile>, dim3(static_cast<unsigned>(problem.tokens)), dim3(Tile::shape.warps * 32),
           static_cast<std::size_t>(bytes), {stream}, problem, Partials{}, 1, 1);
  }
  RAGGEDMLA_GPU_CHECK(cudaStreamEndCapture(stream, &graph));
  RAGGEDMLA_GPU_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  std::vector<float> times;
  for (int i = 0; i < replays + 2; ++i) {
    RAGGEDMLA_GPU_CHECK(cudaEventRecord(begin, stream));
    RAGGEDMLA_GPU_CHECK(cudaGraphLaunch(executable, stream));
    RAGGEDMLA_GPU_CHECK(cudaEventRecord(end, stream));
    RAGGEDMLA_GPU_CHECK(cudaEventSynchronize(end));
    float milliseconds;
    RAGGEDMLA_GPU_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 2) times.push_back(milliseconds);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e3 / calls;
}

void run(int tokens, int heads, int length, std::mt19937& random) {
  constexpr int rows = 8192;
  AttentionProblem problem;
  problem.tokens = tokens;
  problem.heads = heads;
  problem.scale = 0.04419417382415922f;
  problem.q = upload(random_rows(static_cast<std::size_t>(tokens * heads), random));
  problem.q_stride_head = problem.out_stride_head = 512;
  problem.q_stride_token = problem.out_stride_token = heads * 512;
  std::vector<int> indices(static_cast<std::size_t>(tokens * length));
  for (int& index : indices) index = static_cast<int>(random() % rows);
  problem.segment_count = 1;
  SegmentProblem& segment = problem.segments[0];
  segment.list.indices = {upload(indices), length, 1, false};
  segment.list.capacity = length;
  segment.store = {
      reinterpret_cast<std::uint8_t*>(upload(random_rows(rows, random))), 1024, 1024, rows, 1, StoreKind::bf16};
  std::vector<std::uint16_t> expected(static_cast<std::size_t>(tokens * heads * 512)), found(expected.size());
  std::uint16_t* out = upload(expected);
  problem.out = out;
  std::printf("T %d, H %d, K %d\n", tokens, heads, length);
  double reference = 0;
  const auto measure = [&]<class Tile>(Tile) {
    const double microseconds = time_call<Tile>(problem);
    RAGGEDMLA_GPU_CHECK(cudaMemcpy(found.data(), out, found.size() * 2, cudaMemcpyDeviceToHost));
    if (reference == 0) {
      reference = microseconds;
      expected = found;
    }
    double worst = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      worst = std::max<double>(worst, std::fabs(float_from_bf16(found[i]) - float_from_bf16(expected[i])));
    }
    std::printf("  %-62s %8.1f us  x %.2f  (largest difference %.1e)\n", Tile::name, microseconds,
                microseconds / reference, worst);
  };
  measure(Library{});
  measure(EightWarps{});
  measure(MaskAgain{});
  measure(FetchLate{});
  measure(AllUndone{});
}

}  // namespace

}  // namespace raggedmla::gpu

int main() {
  std::mt19937 random(1);
  raggedmla::gpu::run(4096, 16, 1152, random);
  raggedmla::gpu::run(4096, 8, 640, random);
  raggedmla::gpu::run(4096, 16, 384, random);
}
