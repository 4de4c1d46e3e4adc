#include "base/checks.hpp"

#include <cstdint>

namespace raggedmla {

namespace {

std::string shape_text(std::initializer_list<std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += size == any_size ? "*" : std::to_string(size);
  }
  return text + "]";
}

std::string types_text(std::initializer_list<DataType> types) {
  std::string text;
  for (const DataType type : types) text += (text.empty() ? "" : " or ") + std::string(name(type));
  return text;
}

}  // namespace

std::string shape_text(const TensorView& view) {
  std::string text = "[";
  for (int i = 0; i < view.rank; ++i) text += (i ? ", " : "") + std::to_string(view.shape[i]);
  return text + "]";
}

std::string device_text(Device device) {
  if (device.type == DeviceType::cpu) return "cpu";
  return (device.type == DeviceType::cuda ? "cuda:" : "hip:") + std::to_string(device.index);
}

Checker::Scope Checker::within(const char* member, int index) {
  path_.members[path_.depth++] = {member, index};
  return Scope(*this);
}

std::string Checker::text(const Path& path, const char* argument) {
  std::string text;
  for (int i = 0; i < path.depth; ++i) {
    const Path::Member& member = path.members[i];
    text += member.name;
    if (member.index >= 0) text.append("[").append(std::to_string(member.index)).append("]");
    text += ".";
  }
  return text + argument;
}

std::string Checker::full_name(const char* argument) const { return text(path_, argument); }

void Checker::fail(const std::string& message) const { throw Error(std::string(operator_) + ": " + message); }

void Checker::fail(const char* argument, const std::string& what) const { fail(full_name(argument) + " " + what); }

void Checker::tensor(const char* argument, const TensorView& view, std::initializer_list<DataType> types,
                     std::initializer_list<std::int64_t> shape) {
  bool type_fits = false;
  for (const DataType type : types) type_fits = type_fits || view.dtype == type;
  if (!type_fits) fail(argument, std::string("is ") + name(view.dtype) + ", expected " + types_text(types));

  bool shape_fits = view.rank == static_cast<int>(shape.size());
  if (shape_fits) {
    int i = 0;
    for (const std::int64_t size : shape) {
      shape_fits = shape_fits && view.shape[i] >= 0 && (size == any_size || size == view.shape[i]);
      ++i;
    }
  }
  if (!shape_fits) {
    fail(argument, "has shape " + raggedmla::shape_text(view) + ", expected " + shape_text(shape));
  }

  // The last byte's offset must fit: sum over dimensions of (size - 1) * stride, in bytes.
  std::int64_t last = 0, count = 1;
  for (int i = 0; i < view.rank; ++i) {
    if (view.stride[i] < 0) fail(argument, "has a negative stride (dimension " + std::to_string(i) + ")");
    std::int64_t extent = 0;
    const bool fits = !__builtin_mul_overflow(view.shape[i] > 0 ? view.shape[i] - 1 : 0, view.stride[i], &extent) &&
                      !__builtin_add_overflow(last, extent, &last) &&
                      !__builtin_mul_overflow(count, view.shape[i], &count);
    // A stride counts even where no second element uses it: backends turn it into bytes.
    if (!fits || last >= INT64_MAX / 16 || view.stride[i] >= INT64_MAX / 16)
      fail(argument, "is too large: sizes and strides overflow 63 bits");
  }
  if (view.data == nullptr && count != 0) {
    fail(argument, "has a null pointer, expected " + raggedmla::shape_text(view));
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % element_bytes(view.dtype) != 0) {
    fail(argument, "is not aligned to its element size");
  }

  if (first_argument_ == nullptr) {
    first_argument_ = argument;
    first_path_ = path_;
    device_ = view.device;
  }
  if (view.device != device_) {
    fail(argument, "is on " + device_text(view.device) + ", expected " + device_text(device_) + " as " +
                       text(first_path_, first_argument_));
  }
}

void Checker::packed_rows(const char* argument, const TensorView& view) const {
  if (view.size() == 0) return;
  const int last = view.rank - 1;
  if (view.shape[last] <= 1 || view.stride[last] == 1) return;
  fail(argument, "has stride " + std::to_string(view.stride[last]) + " in its last dimension, expected 1");
}

void Checker::aligned_rows(const char* argument, const TensorView& view, std::size_t bytes) const {
  if (view.size() == 0) return;
  if (reinterpret_cast<std::uintptr_t>(view.data) % bytes != 0) {
    fail(argument, "starts at an unaligned address, expected a multiple of " + std::to_string(bytes) + " bytes");
  }
  for (int i = 0; i + 1 < view.rank; ++i) {
    const std::size_t stride = static_cast<std::size_t>(view.stride[i]) * element_bytes(view.dtype);
    if (view.shape[i] <= 1 || stride % bytes == 0) continue;
    fail(argument, "has a stride of " + std::to_string(stride) + " bytes in dimension " + std::to_string(i) +
                       ", expected a multiple of " + std::to_string(bytes) + " bytes");
  }
}

void Checker::writable(const char* argument, const TensorView& view) const {
  if (view.size() == 0) return;
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] <= 1 || view.stride[i] > 0) continue;
    fail(argument, "is an output with stride 0 in dimension " + std::to_string(i));
  }
}

IntArray Checker::integers(const char* argument, const TensorView& view, std::initializer_list<std::int64_t> shape) {
  tensor(argument, view, {DataType::i32, DataType::i64}, shape);
  return {view.data, view.stride[0], view.stride[1], view.dtype == DataType::i64};
}

IntArray Checker::integers(const char* argument, const OptionalTensor& view,
                           std::initializer_list<std::int64_t> shape) {
  return view ? integers(argument, *view, shape) : IntArray{};
}

MutableIntArray Checker::integer_output(const char* argument, const TensorView& view,
                                        std::initializer_list<std::int64_t> shape,
                                        std::initializer_list<DataType> types) {
  tensor(argument, view, types, shape);
  writable(argument, view);
  return {view.data, view.stride[0], view.stride[1], view.dtype == DataType::i64};
}

MutableIntArray Checker::integer_output(const char* argument, const OptionalTensor& view,
                                        std::initializer_list<std::int64_t> shape) {
  return view ? integer_output(argument, *view, shape) : MutableIntArray{};
}

ByteMask Checker::mask(const char* argument, const OptionalTensor& view, std::initializer_list<std::int64_t> shape) {
  if (!view) return {};
  tensor(argument, *view, {DataType::boolean, DataType::u8}, shape);
  return {static_cast<const std::uint8_t*>(view->data), view->stride[0]};
}

void Checker::workspace(const Workspace& workspace, std::size_t needed) const {
  if (workspace.data == nullptr || workspace.bytes < needed) {
    fail("workspace has " + std::to_string(workspace.data ? workspace.bytes : 0) + " bytes, expected at least " +
         std::to_string(needed));
  }
  if (reinterpret_cast<std::uintptr_t>(workspace.data) % 256 != 0) fail("workspace is not aligned to 256 bytes");
  if (workspace.device != device_) {
    fail("workspace is on " + device_text(workspace.device) + ", expected " + device_text(device_));
  }
}

}  // namespace raggedmla
