#include "io/tensor_set.hpp"

#include <fmt/format.h>

#include <charconv>

#include "raggedmla/error.hpp"

namespace raggedmla::io {
namespace {

constexpr std::uintptr_t row_alignment = 16;

template <class Number>
Number parse_number(const TensorSet& set, std::string_view key, Number fallback, const char* expected) {
  const auto found = set.metadata.find(key);
  if (found == set.metadata.end()) return fallback;
  const std::string& text = found->second;
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(fmt::format("{}: metadata {} is '{}', expected {}", set.name(), key, text, expected));
  }
  return value;
}

}  // namespace

TensorView packed_view(void* data, DataType type, const std::vector<std::int64_t>& shape, Device device) {
  TensorView view;
  view.data = data;
  view.dtype = type;
  view.device = device;
  view.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = shape[static_cast<std::size_t>(i)];
    view.stride[i] = stride;
    stride *= std::max<std::int64_t>(view.shape[i], 1);
  }
  return view;
}

std::size_t packed_bytes(const TensorView& view) {
  return static_cast<std::size_t>(view.size()) * element_bytes(view.dtype);
}

TensorSet TensorSet::open(const std::string& path) {
  TensorSet set(path);
  set.file_.emplace(path);
  set.metadata = set.file_->metadata();
  return set;
}

OptionalTensor TensorSet::find(std::string_view tensor) {
  if (const auto found = views_.find(tensor); found != views_.end()) return found->second;
  if (!file_ || !file_->contains(tensor)) return std::nullopt;
  TensorView view = file_->view(tensor);
  if (reinterpret_cast<std::uintptr_t>(view.data) % row_alignment != 0) {
    host::Memory& memory = memory_[std::string(tensor)] = host::Memory(device_, packed_bytes(view));
    file_->copy(tensor, memory.data());
    view.data = memory.data();
  }
  views_.emplace(tensor, view);
  return view;
}

TensorView TensorSet::get(std::string_view tensor) {
  if (const OptionalTensor found = find(tensor)) return *found;
  if (file_) static_cast<void>(file_->view(tensor));  // throws, listing what the file holds
  throw Error(fmt::format("{}: has no tensor '{}'", name_, tensor));
}

TensorView TensorSet::add(const std::string& tensor, DataType type, const std::vector<std::int64_t>& shape) {
  TensorView view = packed_view(nullptr, type, shape, device_);
  if (views_.contains(tensor)) throw Error(fmt::format("{}: tensor '{}' is made twice", name_, tensor));
  host::Memory& memory = memory_[tensor] = host::Memory(device_, packed_bytes(view));
  view.data = memory.data();
  views_.emplace(tensor, view);
  return view;
}

std::string TensorSet::text(std::string_view key, std::string_view fallback) const {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string(fallback) : found->second;
}

double TensorSet::number(std::string_view key, double fallback) const {
  return parse_number(*this, key, fallback, "a number");
}

std::int64_t TensorSet::integer(std::string_view key, std::int64_t fallback) const {
  return parse_number(*this, key, fallback, "a whole number");
}

TensorSet TensorSet::copy_to(Device device) const {
  TensorSet copy(name_, device);
  copy.metadata = metadata;
  for (const auto& [name, view] : views_) {
    const std::vector<std::int64_t> shape(view.shape.begin(), view.shape.begin() + view.rank);
    copy.add(name, view.dtype, shape);
    copy.memory_.at(name).upload(view.data, packed_bytes(view));
  }
  return copy;
}

void TensorSet::download_to(TensorSet& target) const {
  for (const auto& [name, view] : views_) memory_.at(name).download(target.get(name).data, packed_bytes(view));
}

std::vector<NamedTensor> TensorSet::tensors() const {
  std::vector<NamedTensor> all;
  for (const auto& [name, view] : views_) all.push_back({name, view});
  return all;
}

void TensorSet::write(const std::string& path) const { write_safetensors(path, tensors(), metadata); }

}  // namespace raggedmla::io
