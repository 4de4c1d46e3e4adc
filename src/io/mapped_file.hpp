// A file mapped into memory, read only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace raggedmla::io {

class MappedFile {
 public:
  MappedFile() = default;
  /// Throws Error naming the path and the system's answer.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// Gives the whole pages inside `range` back to the system: they are read from the file again when touched. Keeps
  /// the resident size of a program that copies a large file at one file size instead of two.
  void release(std::span<const std::byte> range) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace raggedmla::io
