// One overload per operator: the C structure's fields under the C++ structure's names, and nothing else.
#pragma once

#include <array>

#include "c_api/reader.hpp"

namespace raggedmla::c_api {

QuantizeRows arguments(const Reader& read, const raggedmla_quantize_rows_args* given);
DequantizeRows arguments(const Reader& read, const raggedmla_dequantize_rows_args* given);
GatherRows arguments(const Reader& read, const raggedmla_gather_rows_args* given);
BuildRagged arguments(const Reader& read, const raggedmla_build_ragged_args* given);
TranslateTopk arguments(const Reader& read, const raggedmla_translate_topk_args* given);
WindowRows arguments(const Reader& read, const raggedmla_window_rows_args* given);
CompressedRows arguments(const Reader& read, const raggedmla_compressed_rows_args* given);
Combine arguments(const Reader& read, const raggedmla_combine_args* given);
CopyToGraphBuffers arguments(const Reader& read, const raggedmla_copy_to_graph_buffers_args* given);
MergeStates arguments(const Reader& read, const raggedmla_merge_states_args* given);

/// Attention holds a span of segments; here they live beside it.
class AttentionArguments {
 public:
  AttentionArguments(const Reader& read, const raggedmla_attention_args* given);
  AttentionArguments(const AttentionArguments&) = delete;
  AttentionArguments& operator=(const AttentionArguments&) = delete;
  operator const Attention&() const { return attention_; }

 private:
  static constexpr int max_segments = 4;
  std::array<Segment, max_segments> segments_;
  Attention attention_;
};
inline AttentionArguments arguments(const Reader& read, const raggedmla_attention_args* given) { return {read, given}; }

}  // namespace raggedmla::c_api
