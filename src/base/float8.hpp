// 8-bit floats e4m3 in both encodings, and the UE8M0 scale byte, by their definition (docs/formats.md).
#pragma once

#include <cstdint>

#include "base/bfloat16.hpp"
#include "base/host_device.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla {

/// What distinguishes the two encodings.
struct Fp8Properties {
  int bias;
  float largest;         // largest finite value
  float writer_largest;  // magnitude that writers scale a group's maximum to
  std::uint8_t nan;      // the NaN that writers store
};
RAGGEDMLA_HOST_DEVICE constexpr Fp8Properties fp8_properties(Fp8Encoding encoding) {
  return encoding == Fp8Encoding::ocp ? Fp8Properties{7, 448.0f, 448.0f, 0x7F} : Fp8Properties{8, 240.0f, 224.0f, 0x80};
}

RAGGEDMLA_HOST_DEVICE inline bool is_fp8_nan(std::uint8_t byte, Fp8Encoding encoding) {
  return encoding == Fp8Encoding::ocp ? (byte & 0x7F) == 0x7F : byte == 0x80;
}

/// 2^exponent for exponents of normal floats.
RAGGEDMLA_HOST_DEVICE inline float power_of_two(int exponent) {
  return float_from_bits(static_cast<std::uint32_t>(exponent + 127) << 23);
}

RAGGEDMLA_HOST_DEVICE inline float float_from_fp8(std::uint8_t byte, Fp8Encoding encoding) {
  if (is_fp8_nan(byte, encoding)) return float_from_bits(0x7FC00000u);
  const int bias = fp8_properties(encoding).bias;
  const int exponent = (byte >> 3) & 0xF, mantissa = byte & 7;
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * power_of_two(1 - bias - 3)
                                        : static_cast<float>(8 + mantissa) * power_of_two(exponent - bias - 3);
  return byte & 0x80 ? -magnitude : magnitude;
}

/// Round to nearest even, saturating at the largest finite value; NaN stays NaN. Fnuz has no -0: it becomes 0.
/// Free of branches, so that loops over it vectorise.
RAGGEDMLA_HOST_DEVICE inline std::uint8_t fp8_from_float(float value, Fp8Encoding encoding) {
  const Fp8Properties format = fp8_properties(encoding);
  const std::uint32_t sign = bits_of_float(value) >> 24 & 0x80u;
  const std::uint32_t magnitude = bits_of_float(value) & 0x7FFFFFFFu;
  // Normal codes: keep three mantissa bits and move the exponent to the code's bias.
  const std::uint32_t rounded = (magnitude + 0x7FFFFu + (magnitude >> 20 & 1u)) >> 20;
  const std::uint32_t normal = rounded - (static_cast<std::uint32_t>(127 - format.bias) << 3);
  const std::uint32_t largest = encoding == Fp8Encoding::ocp ? 0x7E : 0x7F;
  // Subnormal codes: adding 2^23 units of the subnormal step rounds to a whole number of steps.
  const float shifted = float_from_bits(magnitude) * power_of_two(format.bias + 2) + 8388608.0f;
  const std::uint32_t subnormal = bits_of_float(shifted) & 0xFu;
  const std::uint32_t smallest_normal = static_cast<std::uint32_t>(128 - format.bias) << 23;
  const std::uint32_t code = magnitude < smallest_normal ? subnormal : (normal < largest ? normal : largest);
  const std::uint32_t signed_code = encoding == Fp8Encoding::fnuz && code == 0 ? 0 : sign | code;
  return static_cast<std::uint8_t>(magnitude > 0x7F800000u ? format.nan : signed_code);
}

/// UE8M0: 2^(byte - 127); byte 0 is the subnormal 2^-127, byte 255 is NaN.
RAGGEDMLA_HOST_DEVICE inline float float_from_ue8m0(std::uint8_t byte) {
  if (byte == 255) return float_from_bits(0x7FC00000u);
  return byte == 0 ? float_from_bits(0x00400000u) : float_from_bits(static_cast<std::uint32_t>(byte) << 23);
}

}  // namespace raggedmla
