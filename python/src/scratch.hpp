// Scratch memory of the operators: the Workspace that a caller holds, and the one used where the caller gives none.
#pragma once

#include <mutex>
#include <vector>

#include "array.hpp"
#include "raggedmla/error.hpp"

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

/// The scratch of a call: `given`, the caller's `workspace` argument, or where that is None a default that belongs to
/// the device and stream; null on a CPU, where it belongs to the thread.
ScratchSpace* find_scratch(nb::handle given, const Array& like, Stream stream);
raggedmla::Workspace thread_scratch(std::size_t bytes);

/// Enqueues an operator with the GIL released. `bytes()` says how much scratch it needs, `enqueue(workspace)` calls it.
///
/// Operators check their scratch themselves, before anything else happens. So the call is made with what there is, and
/// only if it was refused is the size computed: the checks of a call cost a microsecond, and once a call is enough.
template <class Bytes, class Enqueue>
void run(const char* operator_name, nb::handle given, const Array& like, Stream stream, const Bytes& bytes,
         const Enqueue& enqueue) {
  ScratchSpace* space = find_scratch(given, like, stream);
  if (space == nullptr) {
    nb::gil_scoped_release release;
    const std::size_t needed = bytes();
    enqueue(needed > 0 ? thread_scratch(needed) : raggedmla::Workspace{});
    return;
  }
  const auto enqueue_with = [&](const raggedmla::Workspace& workspace) {
    nb::gil_scoped_release release;
    const std::lock_guard lock(space->mutex());
    enqueue(workspace);
  };
  const raggedmla::Workspace present = space->workspace();
  try {
    enqueue_with(present);
  } catch (const Error&) {
    const std::size_t needed = bytes();  // throws, too, if something else is wrong
    if (needed <= present.bytes) throw;
    space->reserve(needed, like, stream, operator_name);
    enqueue_with(space->workspace());
  }
}

/// Operators without scratch.
template <class Enqueue>
void run(const Enqueue& enqueue) {
  nb::gil_scoped_release release;
  enqueue();
}

}  // namespace raggedmla::python
