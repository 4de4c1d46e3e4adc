// AVX-512 (F, BW, VL, DQ): products of fp32, 16 lanes.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "raggedmla/kv_cache.hpp"

namespace raggedmla::cpu {
namespace {

struct Avx512 {
  using Vector = __m512;
  using Element = float;
  using Operand = __m512;
  static constexpr int lanes = 16;
  static constexpr int pack = 1;
  static constexpr int row_block = 4;     // 16 sums in registers: two fused multiply-adds a cycle, latency 4
  static constexpr int column_block = 4;  // the same

  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector fused(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  /// b where either is NaN.
  static Vector maximum(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  static Vector round(Vector a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// a * 2^n for whole n >= -126.
  static Vector times_power_of_two(Vector a, Vector n) { return _mm512_scalef_ps(a, n); }
  /// a, but 0 where x < bound.
  static Vector zero_below(Vector a, Vector x, Vector bound) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), a);
  }
  static float sum(Vector v) { return _mm512_reduce_add_ps(v); }
  static float largest(Vector v) { return _mm512_reduce_max_ps(v); }

  /// Lane i = sum of the lanes of v[i].
  static Vector sum_each(const Vector* v) {
    Vector pairs[8], fours[4];
    for (int i = 0; i < 8; ++i) {
      pairs[i] = add(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    }
    for (int i = 0; i < 4; ++i) {
      const __m512d a = _mm512_castps_pd(pairs[2 * i]), b = _mm512_castps_pd(pairs[2 * i + 1]);
      fours[i] = add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    const Vector low = even_plus_odd_quarters(fours[0], fours[1]), high = even_plus_odd_quarters(fours[2], fours[3]);
    return even_plus_odd_quarters(low, high);
  }
  static Vector even_plus_odd_quarters(Vector a, Vector b) {
    return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  }

  static Operand load_operand(const Element* p) { return load(p); }
  static Operand broadcast_operand(const Element* p) { return broadcast(*p); }
  static Vector multiply_add(Operand a, Operand b, Vector sum) { return fused(a, b, sum); }
  static void stage(Element* p, Vector v) { store(p, v); }
  static void stage_bf16(Element* p, const std::uint16_t* source) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    store(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)));
  }
  /// Round to nearest even; NaN stays NaN (quiet).
  static void store_bf16(std::uint16_t* p, Vector v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(last, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }

  /// An e4m3 code shifted into a half-precision number has the wrong exponent bias, by 8 (OCP) or 7 (FNUZ); the
  /// conversion to float makes subnormals right, and the scale makes up for the bias.
  template <Fp8Encoding encoding>
  static constexpr int fp8_exponent = encoding == Fp8Encoding::ocp ? 8 : 7;
  template <Fp8Encoding>
  static Vector load_fp8(const std::uint8_t* p) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<short>(0xBFFF)));
    return _mm512_cvtph_ps(half);
  }
  template <Fp8Encoding encoding>
  static bool has_nan_code(const std::uint8_t* p, int count) {
    const __m512i nan = _mm512_set1_epi8(encoding == Fp8Encoding::ocp ? 0x7F : static_cast<char>(0x80));
    const __m512i used = _mm512_set1_epi8(encoding == Fp8Encoding::ocp ? 0x7F : static_cast<char>(0xFF));
    __mmask64 found = 0;
    for (int i = 0; i < count; i += 64) {
      found |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(_mm512_loadu_si512(p + i), used), nan);
    }
    return found != 0;
  }
};

}  // namespace
}  // namespace raggedmla::cpu
