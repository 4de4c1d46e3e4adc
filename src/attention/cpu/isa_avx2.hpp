// AVX2 with FMA and F16C: products of fp32, 8 lanes.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "raggedmla/kv_cache.hpp"

namespace raggedmla::cpu {
namespace {

struct Avx2 {
  using Vector = __m256;
  using Element = float;
  using Operand = __m256;
  static constexpr int lanes = 8;
  static constexpr int pack = 1;
  static constexpr int row_block = 2;     // 8 sums and 3 operands in 16 registers
  static constexpr int column_block = 2;  // the same

  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector fused(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  /// b where either is NaN.
  static Vector maximum(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector round(Vector a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// a * 2^n for whole n >= -126.
  static Vector times_power_of_two(Vector a, Vector n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return multiply(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  /// a, but 0 where x < bound.
  static Vector zero_below(Vector a, Vector x, Vector bound) {
    return _mm256_andnot_ps(_mm256_cmp_ps(x, bound, _CMP_LT_OQ), a);
  }
  static float sum(Vector v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float largest(Vector v) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  /// Lane i = sum of the lanes of v[i].
  static Vector sum_each(const Vector* v) {
    Vector pairs[4], fours[2];
    for (int i = 0; i < 4; ++i) {
      pairs[i] = add(_mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    }
    for (int i = 0; i < 2; ++i) {
      const __m256d a = _mm256_castps_pd(pairs[2 * i]), b = _mm256_castps_pd(pairs[2 * i + 1]);
      fours[i] = add(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
    }
    return add(_mm256_permute2f128_ps(fours[0], fours[1], 0x20), _mm256_permute2f128_ps(fours[0], fours[1], 0x31));
  }

  static Operand load_operand(const Element* p) { return load(p); }
  static Operand broadcast_operand(const Element* p) { return broadcast(*p); }
  static Vector multiply_add(Operand a, Operand b, Vector sum) { return fused(a, b, sum); }
  static void stage(Element* p, Vector v) { store(p, v); }
  static void stage_bf16(Element* p, const std::uint16_t* source) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    store(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)));
  }
  /// Round to nearest even; NaN stays NaN (quiet).
  static void store_bf16(std::uint16_t* p, Vector v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(last, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    const __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan);
    const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(chosen), 16);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
  }

  /// An e4m3 code shifted into a half-precision number has the wrong exponent bias, by 8 (OCP) or 7 (FNUZ); the
  /// conversion to float makes subnormals right, and the scale makes up for the bias.
  template <Fp8Encoding encoding>
  static constexpr int fp8_exponent = encoding == Fp8Encoding::ocp ? 8 : 7;
  template <Fp8Encoding>
  static Vector load_fp8(const std::uint8_t* p) {
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i half = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(static_cast<short>(0xBFFF)));
    return _mm256_cvtph_ps(half);
  }
  template <Fp8Encoding encoding>
  static bool has_nan_code(const std::uint8_t* p, int count) {
    const __m256i nan = _mm256_set1_epi8(encoding == Fp8Encoding::ocp ? 0x7F : static_cast<char>(0x80));
    const __m256i used = _mm256_set1_epi8(encoding == Fp8Encoding::ocp ? 0x7F : static_cast<char>(0xFF));
    __m256i found = _mm256_setzero_si256();
    for (int i = 0; i < count; i += 32) {
      const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i));
      found = _mm256_or_si256(found, _mm256_cmpeq_epi8(_mm256_and_si256(codes, used), nan));
    }
    return _mm256_movemask_epi8(found) != 0;
  }
};

}  // namespace
}  // namespace raggedmla::cpu
