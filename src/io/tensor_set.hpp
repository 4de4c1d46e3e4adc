// Named tensors with string metadata, on any device: a mapped file, what a generator made, or a copy of either on a
// GPU.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/device_memory.hpp"
#include "io/safetensors.hpp"
#include "raggedmla/tensor.hpp"

namespace raggedmla::io {

class TensorSet {
 public:
  /// An empty set; `name` is used in messages.
  explicit TensorSet(std::string name, Device device = {}) : name_(std::move(name)), device_(device) {}
  /// A file's tensors. They are used where they lie in the mapping if they start on 16 bytes there, which is what
  /// operators ask of rows; others are copied when first asked for.
  static TensorSet open(const std::string& path);

  const std::string& name() const { return name_; }
  Device device() const { return device_; }

  bool contains(std::string_view tensor) const { return views_.contains(tensor) || (file_ && file_->contains(tensor)); }
  /// A tensor, or nothing / an Error naming the file if the set does not hold it. Memory of a file is not to be
  /// written.
  OptionalTensor find(std::string_view tensor);
  TensorView get(std::string_view tensor);
  /// A new packed tensor, its memory not initialised. The name must be free.
  TensorView add(const std::string& tensor, DataType type, const std::vector<std::int64_t>& shape);

  Metadata metadata;
  /// Metadata as text or number; the fallback if it is absent. Throws Error if it is not a number.
  std::string text(std::string_view key, std::string_view fallback) const;
  double number(std::string_view key, double fallback) const;
  std::int64_t integer(std::string_view key, std::int64_t fallback) const;

  /// The tensors that have been asked for so far, and the metadata, on another device.
  TensorSet copy_to(Device device) const;
  /// Copies every tensor into the tensor of the same name, type and shape of a set on the CPU.
  void download_to(TensorSet& target) const;
  /// The tensors that were added or asked for, by name.
  std::vector<NamedTensor> tensors() const;
  /// Writes them.
  void write(const std::string& path) const;

 private:
  std::string name_;
  Device device_;
  std::optional<SafetensorsFile> file_;
  std::map<std::string, TensorView, std::less<>> views_;
  std::map<std::string, host::Memory, std::less<>> memory_;  // of the tensors that do not lie in the mapping
};

/// A packed view.
TensorView packed_view(void* data, DataType type, const std::vector<std::int64_t>& shape, Device device = {});
std::size_t packed_bytes(const TensorView& view);

}  // namespace raggedmla::io
