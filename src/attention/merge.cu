// Joins partial results over disjoint rows: the parts of a split list, or what other devices computed.
//
// One block per (query, head), 128 threads, each with four neighbouring channels. Every warp finds the parts' weights,
// a lane a part: their maximum first, then the weights.
#include "attention/backends.hpp"
#include "attention/merge.hpp"
#include "attention/output.cuh"
#include "base/workspace.hpp"
#include "gpu/dependent_launch.cuh"
#include "gpu/preload.hpp"
#include "gpu/warp.cuh"

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

/// Four neighbouring channels of the parts of a row. Which of the three kinds it is, all threads of a call agree on.
class PartReader {
 public:
  __device__ PartReader(const MergeProblem& problem, std::int64_t offset)
      : is_f32_(problem.partial_is_f32), stride_(problem.partial_stride_part * (is_f32_ ? 4 : 2)) {
    data_ = static_cast<const std::uint8_t*>(problem.partial_out) + offset * (is_f32_ ? 4 : 2);
    wide_ = is_f32_ && ((reinterpret_cast<std::uintptr_t>(data_) | static_cast<std::uintptr_t>(stride_)) % 16) == 0;
  }
  /// Calls add(part, its four channels) for parts 0 to count - 1 from `first` on.
  template <class Add>
  __device__ void for_each(std::int64_t first, int count, Add&& add) const {
    const std::uint8_t* data = data_ + first * stride_;
    if (wide_) {
#pragma unroll 4
      for (int i = 0; i < count; ++i, data += stride_) {
        const float4 whole = *reinterpret_cast<const float4*>(data);
        add(i, FourChannels{{whole.x, whole.y, whole.z, whole.w}});
      }
      return;
    }
#pragma unroll 1
    for (int i = 0; i < count; ++i, data += stride_) {
      FourChannels four;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        four.v[c] = is_f32_ ? reinterpret_cast<const float*>(data)[c]
                            : float_from_bf16(reinterpret_cast<const std::uint16_t*>(data)[c]);
      }
      add(i, four);
    }
  }

 private:
  bool is_f32_, wide_;
  const std::uint8_t* data_;
  std::int64_t stride_;  // bytes
};

/// The larger of both; NaN wins.
__device__ float larger(float a, float b) { return a > b || a != a ? a : b; }

__global__ void __launch_bounds__(threads)
    merge(const __grid_constant__ MergeProblem problem, const __grid_constant__ SplitTail tail) {
  const std::int64_t row = blockIdx.x, t = row / problem.heads, h = row % problem.heads;
  const int channel = static_cast<int>(threadIdx.x) * 4;
  const std::int64_t lse_row = t * problem.partial_lse_stride_token + h * problem.partial_lse_stride_head;
  const PartReader partials(problem, t * problem.partial_stride_token + h * problem.partial_stride_head + channel);
  wait_for_kernel_in_front();

  // Lanes know the lse of a part each. They are loaded beside the number of parts, not after it.
  const auto lse_of_lane = [&](std::int64_t first) {
    const std::int64_t s = first + lane_index();
    return s < problem.parts ? problem.partial_lse[lse_row + s * problem.partial_lse_stride_part] : 0.0f;
  };
  float lse = lse_of_lane(0);
  const std::int64_t parts = tail.counts ? tail.counts[t] : problem.parts;
  float m = negative_infinity();
  for (std::int64_t first = 0; first < parts; first += warp_lanes) {
    if (first > 0) lse = lse_of_lane(first);
    if (first + lane_index() < parts) m = larger(m, lse);
  }
#pragma unroll
  for (int distance = 1; distance < warp_lanes; distance *= 2) m = larger(m, shuffle_xor(m, distance));

  __shared__ float weights_of_warps[threads / warp_lanes][warp_lanes];
  float* weights = weights_of_warps[warp_index()];
  float sum = 0;
  FourChannels out{};
  for (std::int64_t first = 0; first < parts; first += warp_lanes) {
    if (parts > warp_lanes) lse = lse_of_lane(first);
    const bool empty = first + lane_index() >= parts || lse == negative_infinity();
    const float weight = empty ? 0.0f : exp2_fast((lse - m) * log2_e);
    sum += weight;
    const std::int64_t left = parts - first;
    const int count = left < warp_lanes ? static_cast<int>(left) : warp_lanes;
    sync_warp();
    weights[lane_index()] = empty ? -1.0f : weight;  // an empty part's out may hold anything
    sync_warp();
    partials.for_each(first, count, [&](int i, const FourChannels& part) {
      const float w = weights[i];
#pragma unroll
      for (int c = 0; c < 4; ++c) out.v[c] += w < 0.0f ? 0.0f : w * part.v[c];
    });
  }
  sum = warp_sum(sum);

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
#pragma unroll 4
    for (std::int64_t s = 0; s < parts; ++s) {
      largest = larger(largest, tail.part_max[lse_row + s * problem.partial_lse_stride_part]);
    }
    tail.max_logits[t * tail.max_logits_stride_token + h * tail.max_logits_stride_head] = largest;
  }
}

dim3 merge_grid(const MergeProblem& problem) { return dim3(static_cast<unsigned>(problem.tokens * problem.heads)); }

}  // namespace

std::size_t workspace_bytes_for_parts(const AttentionPlan& plan) {
  return plan.splits > 1 ? workspace_bytes_for(plan.scratch_bytes) : 0;
}

Partials place_parts(const AttentionPlan& plan, Workspace workspace) {
  if (plan.splits <= 1) return {};
  std::byte* scratch = workspace_scratch(workspace);
  return {reinterpret_cast<float*>(scratch + plan.partial_out), reinterpret_cast<float*>(scratch + plan.partial_lse),
          reinterpret_cast<float*>(scratch + plan.partial_max),
          reinterpret_cast<std::int32_t*>(scratch + plan.part_counts)};
}

void merge_parts(const AttentionProblem& problem, int splits, const Partials& partials, Stream stream) {
  MergeProblem merge;
  merge.partial_out = partials.out;
  merge.partial_is_f32 = true;
  merge.partial_stride_part = v4_row.value_width;
  merge.partial_stride_head = merge.partial_stride_part * splits;
  merge.partial_stride_token = merge.partial_stride_head * problem.heads;
  merge.partial_lse = partials.lse;
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
  const SplitTail tail{partials.counts,
                       partials.max_logits,
                       problem.max_logits,
                       problem.max_logits_stride_token,
                       problem.max_logits_stride_head,
                       problem.cos_sin,
                       problem.cos_sin_stride,
                       problem.cos_sin_rows,
                       problem.positions};
  launch_dependent(gpu::merge, merge_grid(merge), dim3(threads), 0, stream, merge, tail);
}

void merge_states(const MergeProblem& problem, int device, Stream stream) {
  require_device(device);
  DeviceScope scope(device);
  launch(merge, merge_grid(problem), dim3(threads), 0, stream, problem, SplitTail{});
}

void preload_merge() { load_kernel(merge); }

}  // namespace raggedmla::gpu
