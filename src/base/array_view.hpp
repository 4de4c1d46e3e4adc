// What kernels see of the caller's tensors: plain pointers with strides, small enough to be kernel parameters.
// They are made from checked TensorViews at the door (api.cpp) and trusted inside.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace raggedmla {

/// An integer array of one or two dimensions, i32 or i64, any stride.
struct IntArray {
  const void* data = nullptr;
  std::int64_t stride0 = 0;
  std::int64_t stride1 = 0;
  bool wide = false;

  RAGGEDMLA_HOST_DEVICE explicit operator bool() const { return data != nullptr; }
  RAGGEDMLA_HOST_DEVICE std::int64_t at_offset(std::int64_t offset) const {
    return wide ? static_cast<const std::int64_t*>(data)[offset] : static_cast<const std::int32_t*>(data)[offset];
  }
  /// at_offset without a branch between neighbouring loads, for device loops that want many of them in flight.
  RAGGEDMLA_HOST_DEVICE std::int64_t gather(std::int64_t offset) const {
    const auto* words = static_cast<const std::int32_t*>(data) + (offset << (wide ? 1 : 0));
    const std::uint32_t low = static_cast<std::uint32_t>(words[0]);
    const std::int32_t high = words[wide ? 1 : 0];
    const auto both =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(high)) << 32 | low);
    return wide ? both : static_cast<std::int32_t>(low);
  }
  /// An element as it stands in memory. Kept so until it is looked at, it makes no thread wait for its load.
  struct Word {
    std::int32_t low, high;  // high: of wide arrays only
  };
  RAGGEDMLA_HOST_DEVICE Word word_at(std::int64_t offset) const {
    const auto* words = static_cast<const std::int32_t*>(data) + (wide ? 2 * offset : offset);
    return {words[0], wide ? words[1] : 0};
  }
  RAGGEDMLA_HOST_DEVICE static std::int64_t value(Word word, bool wide) {
    const std::int64_t both = static_cast<std::int64_t>(word.high) << 32 | static_cast<std::uint32_t>(word.low);
    return wide ? both : word.low;
  }
  RAGGEDMLA_HOST_DEVICE std::int64_t operator()(std::int64_t i) const { return at_offset(i * stride0); }
  RAGGEDMLA_HOST_DEVICE std::int64_t operator()(std::int64_t i, std::int64_t j) const {
    return at_offset(i * stride0 + j * stride1);
  }
  /// The array from element `offset` on.
  RAGGEDMLA_HOST_DEVICE IntArray row(std::int64_t offset) const {
    return {static_cast<const std::int32_t*>(data) + (offset << (wide ? 1 : 0)), stride0, stride1, wide};
  }
};

/// An IntArray of packed i32 rows, as engines have them.
struct PackedInts {
  static constexpr std::int64_t stride1 = 1;
  static constexpr bool wide = false;
  const std::int32_t* data = nullptr;
  std::int64_t stride0 = 0;

  RAGGEDMLA_HOST_DEVICE std::int32_t gather(std::int64_t offset) const { return data[offset]; }
  RAGGEDMLA_HOST_DEVICE PackedInts row(std::int64_t offset) const { return {data + offset, stride0}; }
};

/// An IntArray that is written to.
struct MutableIntArray {
  void* data = nullptr;
  std::int64_t stride0 = 0;
  std::int64_t stride1 = 0;
  bool wide = false;

  RAGGEDMLA_HOST_DEVICE explicit operator bool() const { return data != nullptr; }
  RAGGEDMLA_HOST_DEVICE void store_offset(std::int64_t offset, std::int64_t value) const {
    if (wide) {
      static_cast<std::int64_t*>(data)[offset] = value;
    } else {
      static_cast<std::int32_t*>(data)[offset] = static_cast<std::int32_t>(value);
    }
  }
  RAGGEDMLA_HOST_DEVICE std::int64_t operator()(std::int64_t i) const {
    return IntArray{data, stride0, stride1, wide}(i);
  }
  RAGGEDMLA_HOST_DEVICE void set(std::int64_t i, std::int64_t value) const { store_offset(i * stride0, value); }
  RAGGEDMLA_HOST_DEVICE void set(std::int64_t i, std::int64_t j, std::int64_t value) const {
    store_offset(i * stride0 + j * stride1, value);
  }
};

/// One byte per query, non-zero = valid; absent = all valid.
struct ByteMask {
  const std::uint8_t* data = nullptr;
  std::int64_t stride = 0;

  RAGGEDMLA_HOST_DEVICE bool operator()(std::int64_t i) const { return data == nullptr || data[i * stride] != 0; }
};

/// a + b for an untrusted a and 0 <= b < 2^63: a sum that does not fit comes out negative, which is no row.
RAGGEDMLA_HOST_DEVICE inline std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

RAGGEDMLA_HOST_DEVICE inline std::int64_t clamp_index(std::int64_t value, std::int64_t low, std::int64_t high) {
  return value < low ? low : (value > high ? high : value);
}

}  // namespace raggedmla
