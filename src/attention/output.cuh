// The last steps of an output row, shared by the attention and the merge kernel.
#pragma once

#include "attention/problem.hpp"
#include "base/bfloat16.hpp"
#include "gpu/fast_math.cuh"
#include "gpu/runtime.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla::gpu {

__device__ inline float negative_infinity() { return -__builtin_huge_valf(); }

/// What the softmax of a head ends with, from base 2: `sum` of 2^(score - reference) over its rows. Before the first
/// row the reference is -inf; NaN shows in the sum alone.
class HeadEnd {
 public:
  __device__ HeadEnd(float reference, float sum)
      : reference_(reference == negative_infinity() ? 0.0f : reference), sum_(sum) {}

  /// What the sum of weighted rows is multiplied with. `sink` in base 2, -inf for none.
  __device__ float factor(float sink) const {
    return empty() ? 0.0f : reciprocal_fast(sum_ + exp2_fast(sink - reference_));
  }
  __device__ float lse() const { return empty() ? negative_infinity() : (reference_ + log2_fast(sum_)) * ln_2; }
  __device__ float max_logit(float largest_score) const {
    const bool nan = sum_ != sum_ && largest_score < -negative_infinity();
    return nan ? sum_ : largest_score * ln_2;
  }

 private:
  __device__ bool empty() const { return sum_ == 0; }  // NaN is not

  float reference_, sum_;
};

/// The sink of a head in base 2, -inf if the call has none.
__device__ inline float sink_of(const AttentionProblem& problem, std::int64_t h) {
  return problem.sink ? problem.sink[h * problem.sink_stride] * log2_e : negative_infinity();
}

/// Stores what a head ends with where the call wants it.
__device__ inline void store_statistics(const AttentionProblem& problem, std::int64_t t, std::int64_t h, float lse,
                                        float max_logit) {
  if (problem.lse) problem.lse[t * problem.lse_stride_token + h * problem.lse_stride_head] = lse;
  if (problem.max_logits) {
    problem.max_logits[t * problem.max_logits_stride_token + h * problem.max_logits_stride_head] = max_logit;
  }
}

/// Turns channel pairs of the last 64 back by a query's position; without a position in the table it changes nothing.
class InverseRope {
 public:
  __device__ InverseRope(const float* cos_sin, std::int64_t stride, std::int64_t rows, const IntArray& positions,
                         std::int64_t t) {
    if (cos_sin == nullptr) return;
    const std::int64_t position = positions(t);
    if (position >= 0 && position < rows) angles_ = cos_sin + position * stride;
  }
  __device__ void apply(int channel, float& even, float& odd) const {
    constexpr int first = v4_row.value_width - v4_row.rope_width, pairs = v4_row.rope_width / 2;
    if (angles_ == nullptr || channel < first) return;
    const float cosine = angles_[(channel - first) / 2], sine = angles_[pairs + (channel - first) / 2];
    const float turned = even * cosine + odd * sine;
    odd = odd * cosine - even * sine;
    even = turned;
  }

 private:
  const float* angles_ = nullptr;
};

/// Four neighbouring channels of an output row.
struct alignas(16) FourChannels {
  float v[4];
};

/// Rotates and stores channels [channel, channel + 4) of a row that starts `offset` elements into `out`, anywhere.
__device__ inline void store_channels(void* out, bool is_f32, std::int64_t offset, int channel, FourChannels four,
                                      const InverseRope& rope) {
  rope.apply(channel, four.v[0], four.v[1]);
  rope.apply(channel + 2, four.v[2], four.v[3]);
  if (is_f32) {
    float* place = static_cast<float*>(out) + offset + channel;
    if (reinterpret_cast<std::uintptr_t>(place) % 16 == 0) {
      *reinterpret_cast<float4*>(place) = make_float4(four.v[0], four.v[1], four.v[2], four.v[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) place[i] = four.v[i];
    }
  } else {
    std::uint16_t* place = static_cast<std::uint16_t*>(out) + offset + channel;
    std::uint16_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i] = bf16_from_float(four.v[i]);
    if (reinterpret_cast<std::uintptr_t>(place) % 8 == 0) {
      *reinterpret_cast<uint2*>(place) =
          make_uint2(std::uint32_t{bits[1]} << 16 | bits[0], std::uint32_t{bits[3]} << 16 | bits[2]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) place[i] = bits[i];
    }
  }
}

}  // namespace raggedmla::gpu
