#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "io/safetensors.hpp"
#include "raggedmla/error.hpp"

namespace raggedmla::io {
namespace {

constexpr std::uint64_t data_alignment = 64;

std::uint64_t bytes_of(const TensorView& view) {
  return static_cast<std::uint64_t>(view.size()) * element_bytes(view.dtype);
}

/// The largest power of two, up to the data's alignment, that divides the tensor's size.
std::uint64_t alignment_of(const NamedTensor& tensor) {
  const std::uint64_t bytes = bytes_of(tensor.view);
  return bytes == 0 ? data_alignment : std::min(data_alignment, std::uint64_t{1} << std::countr_zero(bytes));
}

std::string header_text(std::span<const NamedTensor* const> ordered, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t begin = 0;
  for (const NamedTensor* tensor : ordered) {
    const std::uint64_t end = begin + bytes_of(tensor->view);
    header[tensor->name] = {{"dtype", safetensors_name(tensor->view.dtype)},
                            {"shape", std::vector<std::int64_t>(tensor->view.shape.begin(),
                                                                tensor->view.shape.begin() + tensor->view.rank)},
                            {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  const std::uint64_t total = sizeof(std::uint64_t) + text.size();
  text.append((data_alignment - total % data_alignment) % data_alignment, ' ');
  return text;
}

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors, const Metadata& metadata) {
  std::vector<const NamedTensor*> ordered;
  for (const NamedTensor& tensor : tensors) ordered.push_back(&tensor);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const NamedTensor* a, const NamedTensor* b) { return alignment_of(*a) > alignment_of(*b); });
  const std::string header = header_text(ordered, metadata);

  const std::string partial = path + ".partial";
  const auto fail = [&](const char* what) {
    const int error = errno;
    std::remove(partial.c_str());
    throw Error(fmt::format("{}: cannot be {}: {}", path, what, std::strerror(error)));
  };
  std::unique_ptr<std::FILE, FileCloser> file(std::fopen(partial.c_str(), "wb"));
  if (!file) fail("written");
  const auto write = [&](const void* data, std::size_t bytes) {
    if (bytes > 0 && std::fwrite(data, 1, bytes, file.get()) != bytes) fail("written");
  };
  const std::uint64_t header_bytes = header.size();
  write(&header_bytes, sizeof header_bytes);
  write(header.data(), header.size());
  for (const NamedTensor* tensor : ordered) write(tensor->view.data, bytes_of(tensor->view));
  if (std::fclose(file.release()) != 0) fail("written");
  if (std::rename(partial.c_str(), path.c_str()) != 0) fail("put in place");
}

}  // namespace raggedmla::io
