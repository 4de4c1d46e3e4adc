// Sparse multi-query attention over selected cache rows: prefill and decode are the same operator.
#pragma once

#include <cstdint>
#include <span>

#include "raggedmla/kv_cache.hpp"
#include "raggedmla/row_lists.hpp"
#include "raggedmla/tensor.hpp"

namespace raggedmla {

/// A KV source and the rows that each query reads from it. Softmax runs over the union of a call's segments; in
/// DeepSeek-V4 the sliding window is one and the compressed rows are another.
struct Segment {
  KvSource kv;
  RowSelection rows;
};

/// What is done to the output before it is stored.
struct Epilogue {
  enum class Kind : std::uint8_t {
    none,
    inverse_rope,  ///< rotate the last 64 channels back by the query's position
  };
  Kind kind = Kind::none;

  /// f32 `[positions, 64]`: 32 cosines, then 32 sines. Pairs are interleaved: channels (2i, 2i + 1) of the last 64
  /// become (even * cos_i + odd * sin_i, odd * cos_i - even * sin_i).
  TensorView cos_sin;
  /// `[T]` i32 or i64. A position outside the table leaves the row unrotated.
  TensorView positions;
};

/// How a call is carried out. The defaults are right; every field is for tests, measurements and special needs.
struct Schedule {
  enum class Kernel : std::uint8_t {
    automatic,
    reference,  ///< the fp64 definition (CPU tensors only)
    cpu,        ///< the CPU backend
    portable,   ///< the GPU kernel that runs everywhere
    sm90,       ///< Hopper kernels; an Error where no such kernel takes the call
  };
  Kernel kernel = Kernel::automatic;

  /// Parts that a query's rows are split into and merged again, 0 = chosen from shapes and device.
  int splits = 0;

  /// A row's bits do not depend on the other rows of the batch.
  bool batch_invariant = false;

  /// Share of list entries that neighbouring queries of a request have in common (0 to 1), < 0 = unknown. A hint for
  /// the choice of kernel; it never changes what is computed.
  float expected_overlap = -1.0f;
};

/// The attention call.
///
/// For query t, head h, over all valid rows i of all segments (K_i is the row, V_i its first 512 channels):
///
///     z_i    = scale * (q[t, h] . K_i)
///     out    = sum_i exp(z_i) V_i / (sum_i exp(z_i) + exp(sink[h]))
///     lse    = log(sum_i exp(z_i))            natural logarithm, without the sink
///     max_logits = max_i z_i
///
/// No valid row: out = 0, lse = max_logits = -inf, whatever the sink. sink = -inf has no effect, +inf gives out = 0.
/// An index outside the source is skipped and never read. Duplicates count as often as they are listed. Rows that a
/// query does not select never reach its result, whatever they hold.
/// Products take bf16 inputs and accumulate in fp32. Source: DeepSeek-V4 reference `sparse_attn`.
struct Attention {
  TensorView q;                        ///< `[T, H, 512]` bf16, any H, channels packed, strides multiples of 8
  std::span<const Segment> segments;   ///< one to four
  OptionalTensor sink;                 ///< `[H]` or longer f32; the first H count
  float scale = 0.04419417382415922f;  ///< 512^-0.5
  TensorView out;                      ///< `[T, H, 512]` bf16 or f32, channels packed
  OptionalTensor lse;                  ///< `[T, H]` f32
  OptionalTensor max_logits;           ///< `[T, H]` f32
  Epilogue epilogue;
  Schedule schedule;
};

/// Scratch for the call, from shapes, schedule and device only: 512 MiB and more where fp8 rows are unpacked first.
/// A call over less may need more than one over more, so ask for every shape that will be used.
std::size_t attention_workspace_bytes(const Attention& arguments);

/// Enqueues the call on the stream. No allocation, no host wait.
void attention(const Attention& arguments, Workspace workspace = {}, Stream stream = {});

/// Joins S partial results over disjoint rows, and once the sink:
///
///     m = max_s lse[s];  w_s = exp(lse[s] - m)
///     out = sum_s w_s partial_out[s] / (sum_s w_s + exp(sink - m));  lse = m + log(sum_s w_s)
///
/// Partial results must have been computed without the sink. An empty part (lse = -inf) has weight 0 and its out is not
/// read as a number. All parts empty: out = 0, lse = -inf. This is what context parallelism needs.
struct MergeStates {
  TensorView partial_out;  ///< `[S, T, H, 512]` bf16 or f32, channels packed
  TensorView partial_lse;  ///< `[S, T, H]` f32
  OptionalTensor sink;     ///< `[H]` or longer f32; the first H count
  TensorView out;          ///< `[T, H, 512]` bf16 or f32, channels packed
  OptionalTensor lse;      ///< `[T, H]` f32
  Schedule::Kernel kernel = Schedule::Kernel::automatic;
};
void merge_states(const MergeStates& arguments, Stream stream = {});

}  // namespace raggedmla
