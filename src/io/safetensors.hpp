// Safetensors files: named tensors and string metadata in one file.
//
// Layout: u64 little-endian header length n; n bytes of JSON; the data. The JSON maps every tensor name to `dtype`,
// `shape` and `data_offsets` [begin, end) into the data; `__metadata__` maps strings to strings. The data is covered by
// the tensors exactly: no overlap, no gap, nothing behind. Files come from anywhere, so everything is checked before a
// view is handed out, and every error names the file, the tensor and what was expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/mapped_file.hpp"
#include "raggedmla/tensor.hpp"

namespace raggedmla::io {

/// The format's limit on the header length.
inline constexpr std::uint64_t max_header_bytes = 100'000'000;

using Metadata = std::map<std::string, std::string, std::less<>>;

/// A tensor as the header describes it. Its dtype is only text here: a file may hold types that nobody asks for.
struct TensorEntry {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // into the data
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry, std::less<>> tensors;
  Metadata metadata;
};

/// Parses and checks the JSON of a header against the size of the data behind it. `file` is used in messages.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes, const std::string& file);

/// The safetensors name of a type ("BF16"), and back; nothing for a type that the library does not have.
const char* safetensors_name(DataType type);
std::optional<DataType> type_from_safetensors(std::string_view name);

/// A file's tensors, mapped. Views stay valid as long as the object.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  /// Reads from memory of the caller that outlives the object; `name` is used in messages.
  SafetensorsFile(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const Metadata& metadata() const { return header_.metadata; }
  const std::map<std::string, TensorEntry, std::less<>>& tensors() const { return header_.tensors; }
  bool contains(std::string_view tensor) const { return header_.tensors.find(tensor) != header_.tensors.end(); }

  /// The tensor's bytes.
  std::span<const std::byte> bytes(std::string_view tensor) const;
  /// A packed CPU view, not to be written to. Its address has whatever alignment the file gives it. Throws Error when
  /// the tensor is absent, has a type that the library does not have or more than four dimensions.
  TensorView view(std::string_view tensor) const;
  /// Copies the tensor's bytes. Mapped memory is given back piece by piece, so that the copy does not stand beside the
  /// whole original.
  void copy(std::string_view tensor, void* destination) const;

 private:
  void read();
  const TensorEntry& entry(std::string_view tensor) const;

  std::string name_;
  MappedFile file_;
  std::span<const std::byte> bytes_;
  std::span<const std::byte> data_;
  SafetensorsHeader header_;
};

struct NamedTensor {
  std::string name;
  TensorView view;  // packed, on the CPU
};

/// Writes a file through a temporary name beside it, so that a failed write leaves no half file. The data starts on 64
/// bytes and tensors are ordered so that each starts on the largest power of two (up to 64) that divides its size:
/// readers can use rows where they lie.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors, const Metadata& metadata);

}  // namespace raggedmla::io
