#include "scratch.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "raggedmla/device.hpp"
#include "raggedmla/error.hpp"

namespace raggedmla::python {

namespace {

constexpr std::size_t alignment = 256;

/// Scratch of calls without a Workspace on one device and stream. Inside a capture the framework's allocator serves
/// from memory that belongs to the graph, so every capture gets scratch of its own; it is given back with the next
/// capture, as any intermediate array of a captured region is.
struct StreamScratch {
  ScratchSpace eager;
  std::unique_ptr<ScratchSpace> captured;
  std::uint64_t captured_by = 0;
};

ScratchSpace& default_scratch(Device device, Stream stream) {
  using Key = std::tuple<DeviceType, int, void*>;
  static auto& spaces = *new std::map<Key, StreamScratch>;  // never destroyed: the interpreter may be gone by then
  StreamScratch& scratch = spaces[{device.type, device.index, stream.handle}];
  const std::uint64_t capture = capture_id(device, stream);
  if (capture == 0) return scratch.eager;
  if (capture != scratch.captured_by) {
    scratch.captured = std::make_unique<ScratchSpace>(ScratchSpace::Capture::may_grow);
    scratch.captured_by = capture;
  }
  return *scratch.captured;
}

}  // namespace

void ScratchSpace::reserve(std::size_t bytes, const Array& like, Stream stream, const char* operator_name) {
  const Device device = like.view.device;
  if (!buffers_.empty() && !(workspace_.device == device)) {
    throw Error(std::string(operator_name) + ": the workspace was allocated on another device than the arrays");
  }
  if (bytes <= workspace_.bytes) return;
  if (capture_ == Capture::refuses_to_grow && capture_id(device, stream) != 0) {
    throw Error(std::string(operator_name) + ": the workspace holds " + std::to_string(workspace_.bytes) +
                " bytes, the call needs " + std::to_string(bytes) +
                ", and it cannot grow while the stream is being captured; reserve it before, or make one call of this "
                "size outside the capture");
  }
  bytes = std::max(bytes, 2 * workspace_.bytes);  // so that all retired buffers together stay below the one in use
  Array buffer = empty_like(like, {static_cast<std::int64_t>(bytes + alignment)}, DataType::u8);
  void* data = buffer.view.data;
  std::size_t space = bytes + alignment;
  const raggedmla::Workspace grown{std::align(alignment, bytes, data, space), bytes, device};
  initialize_workspace(grown, stream);
  buffers_.push_back(std::move(buffer.owner));
  workspace_ = grown;
}

// CPU calls return when they are done, so a thread's scratch is free again. No Python object: threads end at any time.
raggedmla::Workspace thread_scratch(std::size_t bytes) {
  thread_local std::vector<std::byte> memory;
  if (memory.size() < bytes + alignment) memory = std::vector<std::byte>(bytes + alignment);  // zero, so initialised
  void* data = memory.data();
  std::size_t space = memory.size();
  return {std::align(alignment, bytes, data, space), bytes, Device{}};
}

ScratchSpace* find_scratch(nb::handle given, const Array& like, Stream stream) {
  if (!given.is_none()) return &argument<ScratchSpace>(given, "workspace", "Workspace or None");
  if (like.view.device.type == DeviceType::cpu) return nullptr;
  return &default_scratch(like.view.device, stream);
}

}  // namespace raggedmla::python
