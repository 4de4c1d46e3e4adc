// Joins partial results over disjoint rows: the parts of a split list, or what other devices computed.
//
// One block per (query, head), 128 threads, each with four neighbouring channels. All threads walk the parts' lse
// values twice (they are few and in the cache): maximum, then weights.
#include "attention/backends.hpp"
#include "attention/merge.hpp"
#include "attention/output.cuh"
#include "gpu/preload.hpp"

namespace raggedmla::gpu {

namespace {

constexpr int threads = v4_row.value_width / 4;

/// What split lists have and merge_states has not.
struct SplitTail {
  const std::int32_t* counts = nullptr;  // [T] parts that hold a result
  const float* part_max = nullptr;       // laid out as partial_lse
  float* max_logits = nullptr;
  std::int64_t max_logits_stride_token = 0, max_logits_stride_head = 0;
  const float* cos_sin = nullptr;
  std::int64_t cos_sin_stride = 0, cos_sin_rows = 0;
  IntArray positions;
};

__device__ FourChannels load_four(const void* data, bool is_f32, std::int64_t offset) {
  FourChannels four;
  if (is_f32) {
    const float* source = static_cast<const float*>(data) + offset;
    if (reinterpret_cast<std::uintptr_t>(source) % 16 == 0) {
      const float4 whole = *reinterpret_cast<const float4*>(source);
      return {{whole.x, whole.y, whole.z, whole.w}};
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) four.v[i] = source[i];
  } else {
    const std::uint16_t* source = static_cast<const std::uint16_t*>(data) + offset;
#pragma unroll
    for (int i = 0; i < 4; ++i) four.v[i] = float_from_bf16(source[i]);
  }
  return four;
}

/// The larger of both; NaN wins.
__device__ float larger(float a, float b) { return a > b || a != a ? a : b; }

__global__ void __launch_bounds__(threads)
    merge(const __grid_constant__ MergeProblem problem, const __grid_constant__ SplitTail tail) {
  const std::int64_t row = blockIdx.x, t = row / problem.heads, h = row % problem.heads;
  const int channel = static_cast<int>(threadIdx.x) * 4;
  const std::int64_t lse_row = t * problem.partial_lse_stride_token + h * problem.partial_lse_stride_head;
  const std::int64_t out_row = t * problem.partial_stride_token + h * problem.partial_stride_head + channel;
  const std::int64_t parts = tail.counts ? tail.counts[t] : problem.parts;

  float m = negative_infinity();
  for (std::int64_t s = 0; s < parts; ++s) {
    m = larger(m, problem.partial_lse[lse_row + s * problem.partial_lse_stride_part]);
  }
  float sum = 0;
  FourChannels out{};
#pragma unroll 4
  for (std::int64_t s = 0; s < parts; ++s) {
    const float lse = problem.partial_lse[lse_row + s * problem.partial_lse_stride_part];
    if (lse == negative_infinity()) continue;  // an empty part's out may hold anything
    const float weight = exp2_fast((lse - m) * log2_e);
    const FourChannels part =
        load_four(problem.partial_out, problem.partial_is_f32, out_row + s * problem.partial_stride_part);
    sum += weight;
#pragma unroll
    for (int i = 0; i < 4; ++i) out.v[i] += weight * part.v[i];
  }

  const bool empty = m == negative_infinity();
  float denominator = sum;
  if (problem.sink && !empty) denominator += exp2_fast((problem.sink[h * problem.sink_stride] - m) * log2_e);
  const float factor = empty ? 0.0f : 1.0f / denominator;
  const FourChannels four{{out.v[0] * factor, out.v[1] * factor, out.v[2] * factor, out.v[3] * factor}};
  const InverseRope rope(tail.cos_sin, tail.cos_sin_stride, tail.cos_sin_rows, tail.positions, t);
  store_channels(problem.out, problem.out_is_f32, t * problem.out_stride_token + h * problem.out_stride_head, channel,
                 four, rope);

  if (threadIdx.x != 0) return;
  if (problem.lse) {
    problem.lse[t * problem.lse_stride_token + h * problem.lse_stride_head] =
        empty ? negative_infinity() : m + log2f(sum) * ln_2;
  }
  if (tail.max_logits) {
    float largest = negative_infinity();
    for (std::int64_t s = 0; s < parts; ++s) {
      largest = larger(largest, tail.part_max[lse_row + s * problem.partial_lse_stride_part]);
    }
    tail.max_logits[t * tail.max_logits_stride_token + h * tail.max_logits_stride_head] = largest;
  }
}

void launch_merge(const MergeProblem& problem, const SplitTail& tail, Stream stream) {
  launch(merge, dim3(static_cast<unsigned>(problem.tokens * problem.heads)), dim3(threads), 0, stream, problem, tail);
}

}  // namespace

void merge_parts(const AttentionProblem& problem, int splits, const float* out, const float* lse,
                 const float* max_logits, const std::int32_t* counts, Stream stream) {
  MergeProblem merge;
  merge.partial_out = out;
  merge.partial_is_f32 = true;
  merge.partial_stride_part = v4_row.value_width;
  merge.partial_stride_head = merge.partial_stride_part * splits;
  merge.partial_stride_token = merge.partial_stride_head * problem.heads;
  merge.partial_lse = lse;
  merge.partial_lse_stride_part = 1;
  merge.partial_lse_stride_head = splits;
  merge.partial_lse_stride_token = splits * problem.heads;
  merge.parts = splits;
  merge.tokens = problem.tokens;
  merge.heads = problem.heads;
  merge.sink = problem.sink;
  merge.sink_stride = problem.sink_stride;
  merge.out = problem.out;
  merge.out_is_f32 = problem.out_is_f32;
  merge.out_stride_token = problem.out_stride_token;
  merge.out_stride_head = problem.out_stride_head;
  merge.lse = problem.lse;
  merge.lse_stride_token = problem.lse_stride_token;
  merge.lse_stride_head = problem.lse_stride_head;
  const SplitTail tail{counts,
                       max_logits,
                       problem.max_logits,
                       problem.max_logits_stride_token,
                       problem.max_logits_stride_head,
                       problem.cos_sin,
                       problem.cos_sin_stride,
                       problem.cos_sin_rows,
                       problem.positions};
  launch_merge(merge, tail, stream);
}

void merge_states(const MergeProblem& problem, int device, Stream stream) {
  require_device(device);
  DeviceScope scope(device);
  launch_merge(problem, {}, stream);
}

void preload_merge() { load_kernel(merge); }

}  // namespace raggedmla::gpu
