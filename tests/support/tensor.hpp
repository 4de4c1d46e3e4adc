// Host tensors that own their memory, and random values for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "raggedmla/tensor.hpp"

namespace raggedmla::test {

/// A small generator with the same numbers on every machine (SplitMix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  double uniform();                                           // [0, 1)
  std::int64_t integer(std::int64_t low, std::int64_t high);  // [low, high]
  double normal();  // a sum of four uniform numbers: mean 0, variance 1, at most 3.5

 private:
  std::uint64_t state_;
};

/// Memory with a view. Elements between the strides are poison (0xA5 bytes), so that a kernel that reads or writes them
/// is caught: `padding_intact` tells whether they still are.
///
/// More than `poisoned_bytes` are zero instead, so that a buffer of gigabytes costs only what is written to it.
class Tensor {
 public:
  static constexpr std::size_t poisoned_bytes = std::size_t{256} << 20;

  Tensor() = default;
  Tensor(DataType type, std::vector<std::int64_t> shape) : Tensor(type, std::move(shape), {}) {}
  /// Strides in elements; empty = packed.
  Tensor(DataType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides);

  Tensor(Tensor&&) = default;  // the view follows the memory; a copy's would not
  Tensor& operator=(Tensor&&) = default;

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  operator OptionalTensor() const { return view_; }

  double get(std::initializer_list<std::int64_t> index) const;
  void set(std::initializer_list<std::int64_t> index, double value);
  std::int64_t size() const { return view_.size(); }
  /// The n-th element in row-major order of the shape.
  double flat(std::int64_t n) const;
  void set_flat(std::int64_t n, double value);

  Tensor& fill(double value);
  Tensor& fill_normal(Random& random, double scale = 1.0);
  Tensor& fill_values(const std::vector<double>& values);
  bool padding_intact() const;

 private:
  std::int64_t offset(std::int64_t n) const;
  double read(std::int64_t element_offset) const;
  void write(std::int64_t element_offset, double value);
  /// Calls visit(element offset) in row-major order of the shape.
  template <class Visit>
  void for_each(Visit&& visit) const;

  struct Unmap {
    std::size_t bytes;
    void operator()(std::uint8_t* memory) const;
  };
  TensorView view_;
  std::vector<std::uint8_t> memory_;               // over-allocated by 256 for alignment
  std::unique_ptr<std::uint8_t[], Unmap> zeroes_;  // instead, beyond poisoned_bytes
};

}  // namespace raggedmla::test
