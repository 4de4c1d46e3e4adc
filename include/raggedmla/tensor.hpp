// Non-owning views of the caller's memory. The library owns no tensor and copies none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

namespace raggedmla {

/// Element types. `u8` holds packed cache pages; `boolean` is one byte, zero or not.
enum class DataType : std::uint8_t { f32, bf16, u8, i32, i64, boolean };

/// Bytes of one element.
constexpr std::size_t element_bytes(DataType type) {
  switch (type) {
    case DataType::f32:
    case DataType::i32: return 4;
    case DataType::bf16: return 2;
    case DataType::i64: return 8;
    case DataType::u8:
    case DataType::boolean: return 1;
  }
  return 0;
}

/// "f32", "bf16", "u8", "i32", "i64" or "boolean".
const char* name(DataType type);

enum class DeviceType : std::uint8_t { cpu, cuda, hip };

/// Where memory lies. A view's device is what the view says: no operator asks the driver about a pointer.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// A strided window into memory of up to four dimensions. Strides count elements, not bytes, and may be larger than the
/// packed ones (a column slice, pages of several layers in one slab). A zero-sized view may have a null pointer.
struct TensorView {
  static constexpr int max_rank = 4;

  void* data = nullptr;
  DataType dtype = DataType::f32;
  Device device;
  int rank = 0;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> stride{};

  TensorView() = default;

  /// A packed (row-major, contiguous) view.
  TensorView(void* data, DataType dtype, std::initializer_list<std::int64_t> shape, Device device = {});

  /// A view with explicit strides in elements.
  TensorView(void* data, DataType dtype, std::initializer_list<std::int64_t> shape,
             std::initializer_list<std::int64_t> stride, Device device = {});

  std::int64_t size() const {
    std::int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= shape[i];
    return count;
  }
};

using OptionalTensor = std::optional<TensorView>;

/// The caller's stream: a `cudaStream_t` or `hipStream_t`, null for the default stream. Ignored on a CPU, where
/// operators return when the work is done.
struct Stream {
  void* handle = nullptr;
};

/// The caller's scratch memory. Its size comes from the operator's `*_workspace_bytes`; it must be aligned to 256 bytes
/// and may hold anything, except that `initialize_workspace` must have run once on it before the first operator.
/// Operators that run at the same time (on two streams) need workspaces of their own.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
  Device device;
};

/// Zeroes the small counter area at the start of a workspace: once, when the memory was allocated. Every operator
/// leaves it zero. Enqueued on the stream like any operator.
void initialize_workspace(const Workspace& workspace, Stream stream = {});

}  // namespace raggedmla
