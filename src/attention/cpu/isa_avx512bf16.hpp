// AVX-512 with bf16 dot products: a lane sums two products of bf16 in fp32. Everything else is AVX-512's.
//
// The instruction takes subnormal inputs as 0 and rounds each of its two additions to nearest even. Without compiler
// support for it (tests on other processors) the same dot product is spelt with two fused multiply-adds.
#pragma once

#include "attention/cpu/isa_avx512.hpp"

namespace raggedmla::cpu {
namespace {

struct Avx512Bf16 : Avx512 {
  using Element = std::uint16_t;
  using Operand = __m512i;  // 32 bf16
  static constexpr int pack = 2;

  static Operand load_operand(const Element* p) { return _mm512_loadu_si512(p); }
  static Operand broadcast_operand(const Element* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
#if defined(__AVX512BF16__)
  static Vector multiply_add(Operand a, Operand b, Vector sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static void stage(Element* p, Vector v) {
    const __m256bh rounded = _mm512_cvtneps_pbh(v);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(rounded));
  }
#else
  static Vector multiply_add(Operand a, Operand b, Vector sum) {
    const auto odd = [](Operand x) {
      return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
    };
    const auto even = [](Operand x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); };
    return fused(even(a), even(b), fused(odd(a), odd(b), sum));
  }
  static void stage(Element* p, Vector v) { store_bf16(p, v); }
#endif
  static void stage_bf16(Element* p, const std::uint16_t* source) {
    _mm512_storeu_si512(p, _mm512_loadu_si512(source));
  }
  /// target = a[0], b[0], a[1], b[1], ..., 32 of each.
  static void interleave(Element* target, const Element* a, const Element* b) {
    const Operand first = _mm512_loadu_si512(a), second = _mm512_loadu_si512(b);
    // Quarter i of these: pairs 8 * i to 8 * i + 3 and 8 * i + 4 to 8 * i + 7.
    const Operand low = _mm512_unpacklo_epi16(first, second), high = _mm512_unpackhi_epi16(first, second);
    const Operand front = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const Operand back = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(target, _mm512_permutex2var_epi64(low, front, high));
    _mm512_storeu_si512(target + 32, _mm512_permutex2var_epi64(low, back, high));
  }
};

}  // namespace
}  // namespace raggedmla::cpu
