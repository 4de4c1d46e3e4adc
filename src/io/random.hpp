// Random numbers that are the same on every machine: integer arithmetic and exact conversions only.
#pragma once

#include <cstdint>

namespace raggedmla::io {

/// SplitMix64 as a counter-based generator: draw i of a stream is a hash of (seed, stream, i), so streams are
/// independent and nothing depends on the order in which tensors are filled.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::uint64_t stream) : state_(mix(mix(seed) ^ (stream * golden))) {}

  std::uint64_t bits() { return mix(state_ += golden); }

  /// A whole number in [0, bound), bound <= 2^32. Its bias (below bound / 2^32) is of no interest here.
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(((bits() >> 32) * static_cast<std::uint64_t>(bound)) >> 32);
  }

  /// Mean 0, variance 1: the sum of four 16-bit uniform numbers. No library function is used, whose last bit could
  /// differ between machines. The tails end at 3.46, far enough for inputs of attention.
  float normal() {
    const std::uint64_t draw = bits();
    const auto sum =
        static_cast<std::int32_t>((draw & 0xFFFF) + ((draw >> 16) & 0xFFFF) + ((draw >> 32) & 0xFFFF) + (draw >> 48));
    return static_cast<float>(sum - 2 * 65535) * unit;
  }

 private:
  static constexpr std::uint64_t golden = 0x9E3779B97F4A7C15u;
  static constexpr float unit = 2.6428997921e-5f;  // 1 / sqrt(4 (2^32 - 1) / 12)

  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

}  // namespace raggedmla::io
