// Runs a case on any backend: host tensors are mirrored on the device, outputs come back.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "host/device_memory.hpp"
#include "raggedmla/raggedmla.hpp"
#include "support/tensor.hpp"

namespace raggedmla::test {

/// A way to run operators: a device and, for attention, a kernel.
struct Backend {
  std::string name;
  Device device;
  Schedule::Kernel kernel = Schedule::Kernel::automatic;
  float expected_overlap = Schedule{}.expected_overlap;  // a hint that chooses among the kernels for a device

  void choose_kernel(Schedule& schedule) const {
    schedule.kernel = kernel;
    if (expected_overlap >= 0) schedule.expected_overlap = expected_overlap;  // a call may have a hint of its own
  }
};

/// For operators without kernel choice: "cpu", and "cuda" or "hip" where a GPU is. GPU entries exist in every build, so
/// that their tests can skip visibly.
std::vector<Backend> list_backends();
/// For attention: the CPU backend and every GPU kernel.
std::vector<Backend> attention_backends();
/// False (test must GTEST_SKIP) if the backend's device is not here.
bool present(const Backend& backend);
/// How GoogleTest prints a backend.
inline void PrintTo(const Backend& backend, std::ostream* stream) { *stream << backend.name; }
/// For INSTANTIATE_TEST_SUITE_P names.
std::string backend_name(const Backend& backend);

class Mirror {
 public:
  explicit Mirror(Device device) : device_(device), stream_(device) {}

  /// The tensor on the device, strides kept. On a CPU the view itself.
  TensorView in(const TensorView& host);
  TensorView in(const Tensor& host) { return in(host.view()); }
  OptionalTensor in(const OptionalTensor& host);
  /// The same; its memory comes back at finish().
  TensorView out(const TensorView& host);
  TensorView out(const Tensor& host) { return out(host.view()); }
  OptionalTensor out(const OptionalTensor& host);
  /// Scratch full of NaN, with its counter area initialised.
  Workspace workspace(std::size_t bytes);

  /// Whole argument structs.
  KvSource in(const KvSource& source);
  PagedKv in(const PagedKv& source);
  RowSelection in(const RowSelection& rows);
  QueryLayout in(const QueryLayout& queries);
  ListOutput out(const ListOutput& output);
  RangeOrListOutput out(const RangeOrListOutput& output);
  Attention attention(const Attention& host);

  /// Uploads again what the host tensors hold now (after a test changed them), for graph replays.
  void refresh();
  /// Fills all scratch with NaN again, with its counter area initialised.
  void poison_workspaces();
  /// Waits and brings outputs back.
  void finish();

  Stream stream() const { return stream_.get(); }
  const host::OwnedStream& owned_stream() const { return stream_; }
  Device device() const { return device_; }

 private:
  struct Copy {
    TensorView host;
    host::Memory memory;
    bool output;
  };
  TensorView copy(const TensorView& host, bool output);
  static void upload(Copy& copy);

  Device device_;
  host::OwnedStream stream_;
  std::vector<Copy> copies_;
  std::vector<host::Memory> scratch_;
  std::vector<std::vector<Segment>> segments_;
};

/// Runs the call on a backend with its own scratch; outputs of `host` hold the result.
void run_attention(const Attention& host, const Backend& backend);
/// Whether the call was refused because the backend is the Hopper kernels alone and none of them takes it.
bool is_refusal(const Backend& backend, const Error& error);

}  // namespace raggedmla::test
