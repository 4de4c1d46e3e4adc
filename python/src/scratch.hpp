// Scratch memory of the operators: the Workspace that a caller holds, and the one used where the caller gives none.
#pragma once

#include <mutex>
#include <vector>

#include "array.hpp"

namespace raggedmla::python {

/// Scratch that grows when a call needs more. A captured graph keeps the addresses that it was captured with, so a
/// buffer that was ever handed out lives as long as this object does.
///
/// Serves one device, and calls that run one after the other on it: two streams need two.
class ScratchSpace {
 public:
  enum class Capture { refuses_to_grow, may_grow };
  explicit ScratchSpace(Capture capture = Capture::refuses_to_grow) : capture_(capture) {}

  /// At least `bytes` on `like`'s device, allocated by `like`'s framework and initialised.
  void reserve(std::size_t bytes, const Array& like, Stream stream, const char* operator_name);
  raggedmla::Workspace workspace() const { return workspace_; }

  /// Held while a call is enqueued: the kernels of two threads must not interleave on one scratch.
  std::mutex& mutex() { return mutex_; }

 private:
  Capture capture_;
  std::vector<nb::object> buffers_;  // the last one is in use
  raggedmla::Workspace workspace_;
  std::mutex mutex_;
};

struct Scratch {
  raggedmla::Workspace workspace;
  std::mutex* mutex = nullptr;
};

/// Scratch for a call: of `given`, the caller's `workspace` argument, or where that is None a default of the device and
/// stream (on a CPU: of the thread).
Scratch find_scratch(const char* operator_name, std::size_t bytes, nb::handle given, const Array& like, Stream stream);

/// Enqueues an operator that needs `bytes` of scratch: `enqueue(workspace)`, with the GIL released.
template <class Enqueue>
void run(const char* operator_name, std::size_t bytes, nb::handle given, const Array& like, Stream stream,
         const Enqueue& enqueue) {
  const Scratch scratch = find_scratch(operator_name, bytes, given, like, stream);
  nb::gil_scoped_release release;
  std::unique_lock<std::mutex> lock;
  if (scratch.mutex != nullptr) lock = std::unique_lock(*scratch.mutex);
  enqueue(scratch.workspace);
}

}  // namespace raggedmla::python
