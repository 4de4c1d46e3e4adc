// A workload file is one attention call: tensors under fixed names and a few words of metadata (docs/formats.md).
//
// The call has one to four segments. Each has a name, which is the prefix of its tensors: none for the only segment of
// a flat prefill (`kv`, `indices`, `lengths`), or `main_`, `extra_`, `third_`, `fourth_`:
//
//   source     <p>kv [N, 512] bf16, or <p>pages: u8 [P, page bytes] or bf16 [P, rows, 512] with metadata
//              <p>rows_per_page and <p>encoding (ocp or fnuz); a segment without one reads `kv`
//   rows       <p>indices [T, K] and optional <p>lengths [T]                                     DenseRows
//              <p>indices [capacity] and <p>indptr [T + 1]                                       RaggedRows
//              <p>first [T], <p>count [T], <p>query_start [B + 1] and <p>block_table [B, P] or
//              <p>row_base [B]; metadata <p>ring_rows, <p>max_queries_per_request                RangeRows
//
// Beside them: `q` [T, H, 512] bf16, `sink` [H] f32, metadata `op` (prefill or decode: the same call) and `scale`;
// metadata `epilogue` = inverse_rope with `positions` [T] and `cos_sin` [positions, 64] f32; and what the call should
// give: `out`, `lse`, `max_logits`.
#pragma once

#include <vector>

#include "io/tensor_set.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla::io {

/// An attention call whose inputs are tensors of a set. Outputs and schedule are the caller's to fill in.
struct AttentionCall {
  /// What a segment's tensors are called in the set.
  struct Names {
    std::string prefix, source;  // "main_", "main_pages"
  };

  std::vector<Segment> segments;
  std::vector<Names> names;
  Attention arguments;  // arguments.segments views `segments`

  AttentionCall() = default;
  AttentionCall(AttentionCall&&) = default;  // a moved vector keeps its memory, so the view stays right
  AttentionCall& operator=(AttentionCall&&) = default;
};

/// The call that the set's tensors describe. Throws Error naming the file and the tensor or metadata that is missing
/// or unknown; shapes and types are checked by the operator itself.
AttentionCall bind_attention(TensorSet& tensors);

/// An operator's message with tensor names of the file in place of argument names: `segments[0].rows.indices` becomes
/// `main_indices`.
std::string name_tensors(const AttentionCall& call, std::string message);

/// One query of a call that its operator accepts, on the same CPU memory; `storage` keeps what had to be made for it.
AttentionCall slice_query(const AttentionCall& call, std::int64_t query, TensorSet& storage);

}  // namespace raggedmla::io
