// fp8 codes times their group's scale -> bf16, in registers, exact for every code and every scale byte.
//
// A code `s eeee mmm` moved to `s 0000eeee mmm0000` is a bf16 number 2^120 (ocp, bias 7) or 2^119 (fnuz, bias 8) times
// too small, subnormal codes included, since both formats continue below their smallest exponent in the same way. One
// multiplication by 2^120 * 2^(scale byte - 127) then finishes the job:
//
//     c3 c2 c1 c0  ->  two bytes, sign-extended to 16 bits  ->  * 16, mask  ->  bf16x2 * bf16x2 factors (rounds once)
//
// That holds while the factor is a normal bf16 number and the product needs no rounding (scale bytes 4 to 134: groups
// whose largest magnitude lies between 2^-115 and 57344), and while no code is NaN. Anything else takes the careful
// path: two multiplications and a look at every code. It is a few instructions longer, so it needs no call.
#pragma once

#include <cstdint>

#include "base/bfloat16.hpp"
#include "base/float8.hpp"
#include "base/host_device.hpp"

namespace raggedmla::gpu {

/// Bytes `selector` (four nibbles, lowest byte first) of the eight bytes {high, low}; 0 to 3 are those of `low`.
RAGGEDMLA_HOST_DEVICE inline std::uint32_t permute_bytes(std::uint32_t low, std::uint32_t high,
                                                         std::uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, selector);
#elif defined(__HIP_DEVICE_COMPILE__)
  // One nibble per byte on one side, one byte per byte on the other; the selector is a constant.
  const std::uint32_t spread =
      (selector & 0xFu) | (selector & 0xF0u) << 4 | (selector & 0xF00u) << 8 | (selector & 0xF000u) << 12;
  return __builtin_amdgcn_perm(high, low, spread);
#else
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<std::uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xFF) << (8 * i);
  }
  return result;
#endif
}

/// Bytes (0, 1) or (2, 3) as two signed 16-bit numbers.
template <int pair>
RAGGEDMLA_HOST_DEVICE std::uint32_t extend_bytes(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  std::uint32_t extended;  // nibbles from 8 on: a byte full of the sign of byte - 8
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(extended) : "r"(word), "n"(pair == 0 ? 0x9180 : 0xB3A2));
  return extended;
#else
  const auto extend = [word](int byte) {
    return static_cast<std::uint32_t>(static_cast<std::int8_t>(word >> (8 * byte))) & 0xFFFFu;
  };
  return extend(2 * pair + 1) << 16 | extend(2 * pair);
#endif
}

/// Two bf16 products, rounded to nearest even; subnormal numbers count in full.
RAGGEDMLA_HOST_DEVICE inline std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint32_t product;
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
#else
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));  // + (-0) keeps -0
#endif
  return product;
#else
  const float low = float_from_bits(a << 16) * float_from_bits(b << 16);
  const float high = float_from_bits(a & 0xFFFF0000u) * float_from_bits(b & 0xFFFF0000u);
  return static_cast<std::uint32_t>(bf16_from_float(high)) << 16 | bf16_from_float(low);
#endif
}

/// The same where both products are known to be representable: no rounding.
RAGGEDMLA_HOST_DEVICE inline std::uint32_t multiply_bf16x2_exact(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  return multiply_bf16x2(a, b);
#else
  const float low = float_from_bits(a << 16) * float_from_bits(b << 16);
  const float high = float_from_bits(a & 0xFFFF0000u) * float_from_bits(b & 0xFFFF0000u);
  return permute_bytes(bits_of_float(low), bits_of_float(high), 0x7632);  // the upper half of each
#endif
}

/// The larger magnitude in each half, as bf16 bits without sign. A NaN loses against a number; two of them stay NaN.
RAGGEDMLA_HOST_DEVICE inline std::uint32_t largest_magnitudes(std::uint32_t a, std::uint32_t b) {
  a &= 0x7FFF7FFFu;
  b &= 0x7FFF7FFFu;
#if defined(__CUDA_ARCH__)
  std::uint32_t larger;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
#else
  const auto larger = [](std::uint32_t x, std::uint32_t y) {
    if (x > 0x7F80u) return y;
    return y > 0x7F80u || x > y ? x : y;
  };
  return larger(a >> 16, b >> 16) << 16 | larger(a & 0xFFFFu, b & 0xFFFFu);
#endif
}

/// Two floats -> two codes, `a` in the low byte: as fp8_from_float, with the instruction where there is one.
template <Fp8Encoding encoding>
RAGGEDMLA_HOST_DEVICE std::uint32_t encode_fp8x2(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if constexpr (encoding == Fp8Encoding::ocp) {
    std::uint16_t codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(b), "f"(a));
    return codes;
  }
#endif
  return fp8_from_float(a, encoding) | static_cast<std::uint32_t>(fp8_from_float(b, encoding)) << 8;
}

/// Decodes the codes of rows whose encoding is known when the kernel is compiled.
template <Fp8Encoding encoding>
struct Fp8Decoder {
  /// 2^120 or 2^119: what moves a code's bits, read as bf16, to the code's value.
  static constexpr std::uint32_t bias_exponent = encoding == Fp8Encoding::ocp ? 120 : 119;

  /// Whether one multiplication does it.
  RAGGEDMLA_HOST_DEVICE static bool is_plain(std::uint8_t scale_byte) { return scale_byte - 4u <= 130u; }

  /// The factor of plain scale bytes, in both halves.
  RAGGEDMLA_HOST_DEVICE static std::uint32_t factor(std::uint8_t scale_byte) {
    return scale_byte * 0x00800080u + bias_exponent * 0x00800080u;
  }

  /// Collects whether any of many codes is NaN, for one test at the end: two instructions for four codes. Start with 0.
  /// May see a NaN beside one that is there, or (fnuz) beside a zero: the careful path is right for all codes.
  RAGGEDMLA_HOST_DEVICE static std::uint32_t watch_nan(std::uint32_t seen, std::uint32_t codes) {
    if constexpr (encoding == Fp8Encoding::ocp) {
      return seen | ((codes + 0x01010101u) ^ codes);  // the sign changes: all seven bits below are set
    } else {
      return seen | (~(codes - 0x01010101u) & codes);  // the sign is set and does not survive: 0x80
    }
  }
  RAGGEDMLA_HOST_DEVICE static bool nan_seen(std::uint32_t seen) { return (seen & 0x80808080u) != 0; }

  /// Codes (0, 1) or (2, 3) of a word as bf16 numbers without their bias: bytes to 16 bits with their sign, four bits
  /// up, and away with the copies of the sign that stand in the exponent's place and below the other half.
  template <int pair>
  RAGGEDMLA_HOST_DEVICE static std::uint32_t spread(std::uint32_t codes) {
#if defined(__HIP_DEVICE_COMPILE__)
    return spread_in_parts<pair>(codes);
#else
    return extend_bytes<pair>(codes) * 16 & 0x87F087F0u;
#endif
  }
  /// The same where no instruction extends the sign of any byte: magnitudes and signs travel apart.
  template <int pair>
  RAGGEDMLA_HOST_DEVICE static std::uint32_t spread_in_parts(std::uint32_t codes) {
    const std::uint32_t magnitudes = permute_bytes(codes & 0x7F7F7F7Fu, 0, pair == 0 ? 0x4140 : 0x4342);
    const std::uint32_t signs = permute_bytes(codes & 0x80808080u, 0, pair == 0 ? 0x1404 : 0x3424);
    return magnitudes * 16 + signs;
  }

  /// Four codes -> four bf16 in order, if the scale is plain and no code is NaN.
  RAGGEDMLA_HOST_DEVICE static void decode_plain(std::uint32_t codes, std::uint32_t factor_, std::uint32_t (&out)[2]) {
    out[0] = multiply_bf16x2_exact(spread<0>(codes), factor_);
    out[1] = multiply_bf16x2_exact(spread<1>(codes), factor_);
  }

  /// Four codes -> four bf16 in order, whatever they and the scale are.
  RAGGEDMLA_HOST_DEVICE static void decode_careful(std::uint32_t codes, std::uint8_t scale_byte,
                                                   std::uint32_t (&out)[2]) {
    const std::uint32_t scale = scale_byte == 0 ? 0x0040u : (scale_byte == 255 ? 0x7FC0u : scale_byte * 0x80u);
    out[0] = careful_pair(spread<0>(codes), scale * 0x00010001u);
    out[1] = careful_pair(spread<1>(codes), scale * 0x00010001u);
  }

  /// Whether decode_plain does for `words * 4` codes of one group.
  template <int words>
  RAGGEDMLA_HOST_DEVICE static bool are_plain(const std::uint32_t (&codes)[words], std::uint8_t scale_byte) {
    std::uint32_t seen = 0;
    for (int i = 0; i < words; ++i) seen = watch_nan(seen, codes[i]);
    return is_plain(scale_byte) && !nan_seen(seen);
  }

  /// `words * 4` codes of one group, the usual call: one test for all of them.
  template <int words>
  RAGGEDMLA_HOST_DEVICE static void decode(const std::uint32_t (&codes)[words], std::uint8_t scale_byte,
                                           std::uint32_t (&out)[words][2]) {
    if (are_plain(codes, scale_byte)) {
      const std::uint32_t scale = factor(scale_byte);
      for (int i = 0; i < words; ++i) decode_plain(codes[i], scale, out[i]);
    } else {
      for (int i = 0; i < words; ++i) decode_careful(codes[i], scale_byte, out[i]);
    }
  }

 private:
  RAGGEDMLA_HOST_DEVICE static std::uint32_t careful_pair(std::uint32_t spread_codes, std::uint32_t scale) {
    const std::uint32_t value = multiply_bf16x2(spread_codes, (bias_exponent + 127) * 0x00800080u);  // exact
    std::uint32_t product = multiply_bf16x2(value, scale);
    if (is_nan(spread_codes & 0xFFFFu)) product = (product & 0xFFFF0000u) | 0x7FC0u;
    if (is_nan(spread_codes >> 16)) product = (product & 0xFFFFu) | 0x7FC00000u;
    return product;
  }
  RAGGEDMLA_HOST_DEVICE static bool is_nan(std::uint32_t half) {
    return encoding == Fp8Encoding::ocp ? (half & 0x7FFFu) == 0x07F0u : half == 0x8000u;
  }
};

}  // namespace raggedmla::gpu
