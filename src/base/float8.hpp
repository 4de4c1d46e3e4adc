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
RAGGEDMLA_HOST_DEVICE inline std::uint8_t fp8_from_float(float value, Fp8Encoding encoding) {
  const Fp8Properties format = fp8_properties(encoding);
  const std::uint32_t bits = bits_of_float(value);
  const std::uint8_t sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const float magnitude = float_from_bits(bits & 0x7FFFFFFFu);
  if (magnitude != magnitude) return format.nan;
  std::uint8_t code;
  const float smallest_normal = power_of_two(1 - format.bias);
  if (magnitude >= format.largest) {
    code = encoding == Fp8Encoding::ocp ? 0x7E : 0x7F;
  } else if (magnitude < smallest_normal) {
    // Adding 2^23 units of the subnormal step rounds to a whole number of steps, ties to even.
    const float shifted = magnitude * power_of_two(format.bias + 2) + 8388608.0f;
    code = static_cast<std::uint8_t>(bits_of_float(shifted) & 0xFu);
  } else {
    const std::uint32_t magnitude_bits = bits & 0x7FFFFFFFu;
    const std::uint32_t rounded = magnitude_bits + 0x7FFFFu + ((magnitude_bits >> 20) & 1u);
    code = static_cast<std::uint8_t>((rounded >> 20) - (static_cast<std::uint32_t>(127 - format.bias) << 3));
  }
  if (code == 0 && encoding == Fp8Encoding::fnuz) return 0;
  return static_cast<std::uint8_t>(sign | code);
}

/// UE8M0: 2^(byte - 127); byte 0 is the subnormal 2^-127, byte 255 is NaN.
RAGGEDMLA_HOST_DEVICE inline float float_from_ue8m0(std::uint8_t byte) {
  if (byte == 255) return float_from_bits(0x7FC00000u);
  return byte == 0 ? float_from_bits(0x00400000u) : float_from_bits(static_cast<std::uint32_t>(byte) << 23);
}

}  // namespace raggedmla
