// Files with known results: workloads with stored outputs, and recorded attention layers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention_run.hpp"

namespace raggedmla::cli {

/// One line of the table: a call or a writer that was checked.
struct Verdict {
  std::string file, what;
  std::optional<io::Comparison> comparison;  // attention calls
  bool passed = false;
  std::string note;
};

/// A workload with `out` (and `lse`, `max_logits`): the call, and if rows before quantisation are stored
/// (`main_rows_bf16`, `extra_rows_bf16`), that quantize_rows reproduces the pages.
std::vector<Verdict> verify_workload(io::TensorSet& tensors, const Target& target);

/// A recorded layer: queries `q` with `prefill_rows`, `prefill_indices`, `decode_indices`, `final_cache` and
/// `attn_out`; the prefill call and all decode steps.
std::vector<Verdict> verify_layer(io::TensorSet& tensors, const Target& target);

}  // namespace raggedmla::cli
