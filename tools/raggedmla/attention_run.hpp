// Running an attention call of a workload on a chosen device, with results in CPU memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/device_memory.hpp"
#include "io/comparison.hpp"
#include "io/workload.hpp"

namespace raggedmla::cli {

/// Where a call runs and by which kernel.
struct Target {
  Device device;
  Schedule::Kernel kernel = Schedule::Kernel::automatic;
};

/// From `--device` (cpu, reference, cuda, cuda:1, hip, ...) and `--kernel` (automatic, portable, sm90, ...).
Target parse_target(const std::string& device, const std::string& kernel = "automatic");
std::string target_text(const Target& target);

/// What a call has to do.
struct Work {
  std::int64_t queries = 0, heads = 0;
  std::int64_t rows = 0;  ///< list entries that select a row, over all queries and segments
  double flops = 0;       ///< two products of 512 channels: 4 * heads * 512 * rows
  double bytes = 0;       ///< selected rows as stored, once per query; q and out
};

class AttentionRun {
 public:
  /// Copies the inputs to the device, and checks the call: an Error names the file and its tensors.
  /// `tensors` must outlive the object.
  AttentionRun(io::TensorSet& tensors, const Target& target, DataType out_type = DataType::bf16);

  /// Runs once and brings the results back.
  void run();
  /// Seconds of single calls, results left as they are. A graph of one call is replayed where the device has graphs.
  std::vector<double> time(int repetitions);

  io::AttentionResult result() const;
  /// `out`, `lse` and `max_logits` as a set that can be written to a file.
  const io::TensorSet& results() const { return results_; }
  /// The call on CPU memory with its results: what a reference is computed from.
  const io::AttentionCall& host_call() const { return host_call_; }
  const Work& work() const { return work_; }

 private:
  void bind(io::TensorSet& tensors, DataType out_type);
  void enqueue(Stream stream) const;

  Target target_;
  std::string file_;
  io::TensorSet results_{"results"};
  io::AttentionCall host_call_;
  std::optional<io::TensorSet> device_inputs_, device_results_;  // absent on the CPU
  io::AttentionCall call_;                                       // on the target
  host::Memory scratch_;
  host::OwnedStream stream_;
  Work work_;
};

}  // namespace raggedmla::cli
