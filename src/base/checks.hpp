// The checks at the door: one vocabulary for every operator, so that all messages read alike:
// `build_ragged: lengths has shape [7], expected [8]`.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>

#include "base/array_view.hpp"
#include "raggedmla/error.hpp"
#include "raggedmla/tensor.hpp"

namespace raggedmla {

/// A dimension that may have any size, in `Checker::shape`.
inline constexpr std::int64_t any_size = -1;

/// Checks the arguments of one operator. The first tensor given fixes the device; all others must be on it.
/// Nothing is allocated while everything is right: texts are made only for a message.
class Checker {
 public:
  explicit Checker(const char* operator_name) : operator_(operator_name) {}

  /// While it lives, arguments are named as members: `within("segments", 1)` makes `rows.indptr` read
  /// `segments[1].rows.indptr`.
  class Scope {
   public:
    explicit Scope(Checker& checker) : checker_(checker) {}
    ~Scope() { --checker_.path_.depth; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Checker& checker_;
  };
  [[nodiscard]] Scope within(const char* member, int index = -1);

  /// The argument's full name.
  std::string full_name(const char* argument) const;

  /// Throws Error("<operator>: <message>").
  [[noreturn]] void fail(const std::string& message) const;
  /// Throws Error("<operator>: <full name of the argument> <what>").
  [[noreturn]] void fail(const char* argument, const std::string& what) const;
  /// A message of several parts is given as a lambda (or behind `if (!condition) fail(...)`): operators are called
  /// thousands of times a second, so no string is built unless the check fails.
  void require(bool condition, const char* message) const {
    if (!condition) fail(message);
  }
  template <std::invocable Message>
  void require(bool condition, const Message& message) const {
    if (!condition) fail(message());
  }

  /// dtype is one of `types`, shape matches (any_size matches all), device agrees, data is non-null unless the tensor
  /// is empty, strides are not negative and every size and byte offset fits 63 bits.
  void tensor(const char* argument, const TensorView& view, std::initializer_list<DataType> types,
              std::initializer_list<std::int64_t> shape);
  // Three checks of strides; a tensor without elements passes them all.
  /// The last dimension is packed (stride 1).
  void packed_rows(const char* argument, const TensorView& view) const;
  /// Every row (all but the last dimension) starts on a multiple of `bytes`.
  void aligned_rows(const char* argument, const TensorView& view, std::size_t bytes) const;
  /// Two elements of an output never share memory (no zero stride on a dimension longer than one).
  void writable(const char* argument, const TensorView& view) const;

  /// tensor() for i32 or i64, flattened.
  IntArray integers(const char* argument, const TensorView& view, std::initializer_list<std::int64_t> shape);
  IntArray integers(const char* argument, const OptionalTensor& view, std::initializer_list<std::int64_t> shape);
  MutableIntArray integer_output(const char* argument, const TensorView& view,
                                 std::initializer_list<std::int64_t> shape,
                                 std::initializer_list<DataType> types = {DataType::i32});
  MutableIntArray integer_output(const char* argument, const OptionalTensor& view,
                                 std::initializer_list<std::int64_t> shape);
  ByteMask mask(const char* argument, const OptionalTensor& view, std::initializer_list<std::int64_t> shape);

  /// Scratch is large enough, aligned and on the same device; only called when `needed` > 0.
  void workspace(const Workspace& workspace, std::size_t needed) const;

  /// The device that all tensors share.
  Device device() const { return device_; }

 private:
  struct Path {
    static constexpr int max_depth = 4;
    struct Member {
      const char* name = nullptr;
      int index = -1;
    } members[max_depth];
    int depth = 0;
  };
  static std::string text(const Path& path, const char* argument);

  const char* operator_;
  Path path_;
  Path first_path_;
  const char* first_argument_ = nullptr;
  Device device_;
};

/// "[4, 16, 512]".
std::string shape_text(const TensorView& view);
/// "cpu", "cuda:0", "hip:1".
std::string device_text(Device device);

}  // namespace raggedmla
