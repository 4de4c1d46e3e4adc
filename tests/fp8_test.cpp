// fp8 codes and scale bytes against tables that are written down here from the formats' definition.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/float8.hpp"
#include "gpu/fp8.cuh"

namespace raggedmla::test {

namespace {

/// The definition: sign * 2^(e - bias) * 1.mmm, or sign * 2^(1 - bias) * 0.mmm for e = 0, in doubles.
double code_value(int code, Fp8Encoding encoding) {
  const int bias = encoding == Fp8Encoding::ocp ? 7 : 8;
  const bool is_nan = encoding == Fp8Encoding::ocp ? (code & 0x7F) == 0x7F : code == 0x80;
  if (is_nan) return std::nan("");
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa / 8.0, 1 - bias) : std::ldexp(1 + mantissa / 8.0, exponent - bias);
  return code & 0x80 ? -magnitude : magnitude;
}

double scale_value(int byte) { return byte == 255 ? std::nan("") : std::ldexp(1.0, byte - 127); }

bool same_bf16(std::uint16_t got, std::uint16_t expected) {
  const auto is_nan = [](std::uint16_t bits) { return (bits & 0x7FFF) > 0x7F80; };
  return is_nan(expected) ? is_nan(got) : got == expected;
}

/// Nearest even from a double, by the two neighbours.
std::uint16_t bf16_from_double(double value) {
  if (std::isnan(value)) return 0x7FC0;
  return bf16_from_float(static_cast<float>(value));  // products here have 4 significant bits: the cast is exact
}

template <Fp8Encoding encoding>
void check_decoder() {
  using Decoder = gpu::Fp8Decoder<encoding>;
  for (int byte = 0; byte < 256; ++byte) {
    for (int code = 0; code < 256; ++code) {
      // The code under test in every place, beside neighbours that must not matter.
      for (int place = 0; place < 4; ++place) {
        const std::uint32_t neighbours = 0x38B80111u;
        const std::uint32_t mask = 0xFFu << (8 * place);
        const std::uint32_t words[1] = {(neighbours & ~mask) | static_cast<std::uint32_t>(code) << (8 * place)};
        std::uint32_t out[1][2];
        Decoder::decode(words, static_cast<std::uint8_t>(byte), out);
        for (int i = 0; i < 4; ++i) {
          const int at = static_cast<int>(words[0] >> (8 * i) & 0xFF);
          const std::uint16_t expected = bf16_from_double(code_value(at, encoding) * scale_value(byte));
          const auto got = static_cast<std::uint16_t>(out[0][i / 2] >> (16 * (i % 2)));
          ASSERT_TRUE(same_bf16(got, expected))
              << "code " << at << " scale byte " << byte << " place " << i << ": " << got << ", expected " << expected;
        }
      }
    }
  }
}

}  // namespace

TEST(Fp8, Landmarks) {
  EXPECT_EQ(float_from_fp8(0x38, Fp8Encoding::ocp), 1.0f);
  EXPECT_EQ(float_from_fp8(0x38, Fp8Encoding::fnuz), 0.5f);
  EXPECT_EQ(float_from_fp8(0x7E, Fp8Encoding::ocp), 448.0f);
  EXPECT_EQ(float_from_fp8(0x7F, Fp8Encoding::fnuz), 240.0f);
  EXPECT_EQ(float_from_fp8(0x01, Fp8Encoding::ocp), 0x1p-9f);
  EXPECT_EQ(float_from_fp8(0x01, Fp8Encoding::fnuz), 0x1p-10f);
  EXPECT_TRUE(std::isnan(float_from_fp8(0x7F, Fp8Encoding::ocp)));
  EXPECT_TRUE(std::isnan(float_from_fp8(0xFF, Fp8Encoding::ocp)));
  EXPECT_TRUE(std::isnan(float_from_fp8(0x80, Fp8Encoding::fnuz)));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(float_from_fp8(0x80, Fp8Encoding::ocp)), 0x80000000u);
}

TEST(Fp8, BothWaysToSpreadCodesAgree) {
  using Decoder = gpu::Fp8Decoder<Fp8Encoding::ocp>;
  for (std::uint32_t pair = 0; pair < 0x10000; ++pair) {
    const std::uint32_t word = pair << 16 | (pair ^ 0xA55Au);
    EXPECT_EQ(Decoder::spread<0>(word), Decoder::spread_in_parts<0>(word)) << word;
    EXPECT_EQ(Decoder::spread<1>(word), Decoder::spread_in_parts<1>(word)) << word;
  }
}

TEST(Fp8, AllCodesAgreeWithTheDefinition) {
  for (const Fp8Encoding encoding : {Fp8Encoding::ocp, Fp8Encoding::fnuz}) {
    for (int code = 0; code < 256; ++code) {
      const double expected = code_value(code, encoding);
      const float got = float_from_fp8(static_cast<std::uint8_t>(code), encoding);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(got)) << code;
      } else {
        EXPECT_EQ(got, expected) << code;
        EXPECT_EQ(std::signbit(got), std::signbit(expected)) << code;
      }
    }
  }
}

TEST(Fp8, ScaleBytes) {
  EXPECT_EQ(float_from_ue8m0(127), 1.0f);
  EXPECT_EQ(float_from_ue8m0(0), 0x1p-127f);
  EXPECT_EQ(float_from_ue8m0(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(float_from_ue8m0(255)));
}

// Every float between -512 and 512 that is a bf16 number rounds to the nearest code, ties to the even one.
TEST(Fp8, RoundsToTheNearestCode) {
  for (const Fp8Encoding encoding : {Fp8Encoding::ocp, Fp8Encoding::fnuz}) {
    const double largest = encoding == Fp8Encoding::ocp ? 448 : 240;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float value = float_from_bf16(static_cast<std::uint16_t>(bits));
      const std::uint8_t got = fp8_from_float(value, encoding);
      if (std::isnan(value)) {
        EXPECT_TRUE(is_fp8_nan(got, encoding));
        continue;
      }
      int nearest = -1;
      double distance = HUGE_VAL;
      const double clamped = std::clamp<double>(value, -largest, largest);
      for (int magnitude = 0; magnitude < 128; ++magnitude) {
        const double difference = std::abs(code_value(magnitude, encoding) - std::abs(clamped));
        if (difference < distance || (difference == distance && magnitude % 2 == 0)) {
          distance = difference;
          nearest = magnitude;
        }
      }
      if (std::signbit(value) && !(nearest == 0 && encoding == Fp8Encoding::fnuz)) nearest |= 0x80;
      ASSERT_EQ(got, nearest) << value;
    }
  }
}

TEST(Fp8, LargestMagnitudesIgnoreNan) {
  const std::uint32_t one = 0x3F80, two = 0xC000, nan_bits = 0xFFC0, infinity = 0x7F80;
  EXPECT_EQ(gpu::largest_magnitudes(one << 16 | two, two << 16 | one), 0x40004000u);
  EXPECT_EQ(gpu::largest_magnitudes(one << 16 | nan_bits, nan_bits << 16 | two), 0x3F804000u);
  EXPECT_EQ(gpu::largest_magnitudes(infinity, nan_bits), infinity);
  EXPECT_GT(gpu::largest_magnitudes(nan_bits, nan_bits), infinity);
}

TEST(Fp8, DecoderIsExactForAllCodesAndScalesOcp) { check_decoder<Fp8Encoding::ocp>(); }
TEST(Fp8, DecoderIsExactForAllCodesAndScalesFnuz) { check_decoder<Fp8Encoding::fnuz>(); }

}  // namespace raggedmla::test
