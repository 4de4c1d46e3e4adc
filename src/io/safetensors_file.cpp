#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "io/safetensors.hpp"
#include "raggedmla/error.hpp"

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and is used in place");

namespace raggedmla::io {

SafetensorsFile::SafetensorsFile(const std::string& path) : name_(path), file_(path), bytes_(file_.bytes()) { read(); }

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)), bytes_(bytes) {
  read();
}

void SafetensorsFile::read() {
  std::uint64_t header_bytes = 0;
  if (bytes_.size() < sizeof header_bytes) {
    throw Error(fmt::format("{}: has {} bytes, expected a safetensors file (8 bytes of header length first)", name_,
                            bytes_.size()));
  }
  std::memcpy(&header_bytes, bytes_.data(), sizeof header_bytes);
  if (header_bytes > max_header_bytes) {
    throw Error(fmt::format("{}: header length is {}, expected at most {} (is this a safetensors file?)", name_,
                            header_bytes, max_header_bytes));
  }
  if (header_bytes > bytes_.size() - sizeof header_bytes) {
    throw Error(fmt::format("{}: header length is {}, but only {} bytes follow (the file is cut off)", name_,
                            header_bytes, bytes_.size() - sizeof header_bytes));
  }
  const auto header = bytes_.subspan(sizeof header_bytes, header_bytes);
  data_ = bytes_.subspan(sizeof header_bytes + header_bytes);
  header_ =
      parse_safetensors_header({reinterpret_cast<const char*>(header.data()), header.size()}, data_.size(), name_);
}

const TensorEntry& SafetensorsFile::entry(std::string_view tensor) const {
  const auto found = header_.tensors.find(tensor);
  if (found == header_.tensors.end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, unused] : header_.tensors) names.push_back(name);
    if (names.size() > 24) {
      names.resize(24);
      names.push_back("...");
    }
    throw Error(fmt::format("{}: has no tensor '{}' (it holds: {})", name_, tensor, fmt::join(names, ", ")));
  }
  return found->second;
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view tensor) const {
  const TensorEntry& found = entry(tensor);
  return data_.subspan(found.begin, found.end - found.begin);
}

TensorView SafetensorsFile::view(std::string_view tensor) const {
  const TensorEntry& found = entry(tensor);
  const std::optional<DataType> type = type_from_safetensors(found.dtype);
  if (!type) {
    throw Error(fmt::format("{}: tensor '{}' has dtype {}, expected F32, BF16, U8, I32, I64 or BOOL", name_, tensor,
                            found.dtype));
  }
  if (found.shape.size() > TensorView::max_rank) {
    throw Error(fmt::format("{}: tensor '{}' has shape [{}], expected at most {} dimensions", name_, tensor,
                            fmt::join(found.shape, ", "), TensorView::max_rank));
  }
  TensorView view;
  view.data = const_cast<std::byte*>(bytes(tensor).data());
  view.dtype = *type;
  view.rank = static_cast<int>(found.shape.size());
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = static_cast<std::int64_t>(found.shape[i]);
    view.stride[i] = stride;
    stride *= std::max<std::int64_t>(view.shape[i], 1);
  }
  return view;
}

void SafetensorsFile::copy(std::string_view tensor, void* destination) const {
  constexpr std::size_t piece = std::size_t{4} << 20;
  auto* target = static_cast<std::byte*>(destination);
  for (auto rest = bytes(tensor); !rest.empty();) {
    const auto part = rest.first(std::min(piece, rest.size()));
    std::memcpy(target, part.data(), part.size());
    if (!file_.bytes().empty()) file_.release(part);
    target += part.size();
    rest = rest.subspan(part.size());
  }
}

}  // namespace raggedmla::io
