// The scale of a group of 64 channels without a logarithm.
//
// The rule is e = ceil(log2(a / m)) for the floored largest magnitude a and m = 448 = 1.75 * 2^8 (ocp) or
// 224 = 1.75 * 2^7 (fnuz). A bf16 number is a = (1 + f / 128) * 2^E, so a <= 1.75 * 2^E exactly when f <= 0x60, and
//
//     e = E - 8 + (f > 0x60)    (ocp)        e = E - 7 + (f > 0x60)    (fnuz).
//
// e grows with a, so flooring a is flooring e: log2(1e-4 / 448) = -22.1, log2(1e-4 / 224) = -21.1, log2(1e-4) = -13.3.
// tests/kv_cache_write_test.cpp compares this with the rule for every bf16 number.
#pragma once

#include <cstdint>

#include "base/float8.hpp"
#include "base/host_device.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla {

/// The bits of |x| as they count for a group's largest magnitude: NaN is ignored. Their order is that of the values.
RAGGEDMLA_HOST_DEVICE inline std::uint32_t magnitude_bits(std::uint32_t bf16) {
  const std::uint32_t magnitude = bf16 & 0x7FFFu;
  return magnitude > 0x7F80u ? 0 : magnitude;
}

/// e from the bits of a group's largest magnitude. At most 127: an infinite magnitude is stored with scale 2^127 as the
/// largest code, which reads back as infinity.
RAGGEDMLA_HOST_DEVICE inline int scale_exponent(std::uint32_t largest_bits, Fp8Encoding encoding, ScaleFloor floor) {
  if (largest_bits == 0x7F80u) return 127;
  const bool ocp = encoding == Fp8Encoding::ocp;
  const int exponent = static_cast<int>(largest_bits >> 7) - 127 - (ocp ? 8 : 7) + ((largest_bits & 0x7Fu) > 0x60u);
  const int lowest = floor == ScaleFloor::quotient ? -13 : (ocp ? -22 : -21);
  return exponent < lowest ? lowest : exponent;
}

/// The scale byte of e, and 2^-e that the group is multiplied with.
RAGGEDMLA_HOST_DEVICE inline std::uint8_t scale_byte(int exponent) { return static_cast<std::uint8_t>(exponent + 127); }
RAGGEDMLA_HOST_DEVICE inline float inverse_scale(int exponent) {
  return float_from_ue8m0(static_cast<std::uint8_t>(127 - exponent));
}

}  // namespace raggedmla
