// Any processor: four lanes in the compiler's own vector type.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "base/bfloat16.hpp"
#include "base/float8.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla::cpu {
namespace {

std::array<float, 256> values_of_codes(Fp8Encoding encoding) {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = float_from_fp8(static_cast<std::uint8_t>(code), encoding);
  }
  return values;
}
const std::array<float, 256> ocp_values = values_of_codes(Fp8Encoding::ocp);
const std::array<float, 256> fnuz_values = values_of_codes(Fp8Encoding::fnuz);

struct Portable {
  typedef float Vector __attribute__((vector_size(16)));
  typedef std::int32_t Integers __attribute__((vector_size(16)));
  using Element = float;
  using Operand = Vector;
  static constexpr int lanes = 4;
  static constexpr int pack = 1;
  static constexpr int row_block = 2;
  static constexpr int column_block = 2;

  static Vector zero() { return Vector{}; }
  static Vector broadcast(float x) { return Vector{x, x, x, x}; }
  static Vector load(const float* p) {
    Vector v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }
  static Vector add(Vector a, Vector b) { return a + b; }
  static Vector subtract(Vector a, Vector b) { return a - b; }
  static Vector multiply(Vector a, Vector b) { return a * b; }
  static Vector fused(Vector a, Vector b, Vector c) { return a * b + c; }
  /// b where either is NaN.
  static Vector maximum(Vector a, Vector b) { return a > b ? a : b; }
  /// Adding 1.5 * 2^23 leaves no bits behind the point. |a| < 2^22; NaN stays NaN.
  static Vector round(Vector a) {
    const Vector magic = broadcast(12582912.0f);
    return (a + magic) - magic;
  }
  /// a * 2^n for whole n >= -126.
  static Vector times_power_of_two(Vector a, Vector n) {
    const Integers exponent = __builtin_convertvector(n == n ? n : zero(), Integers) + 127;
    const Integers bits = exponent << 23;
    Vector power;
    std::memcpy(&power, &bits, sizeof power);
    return a * power;
  }
  /// a, but 0 where x < bound.
  static Vector zero_below(Vector a, Vector x, Vector bound) { return x < bound ? zero() : a; }
  static float sum(Vector v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  static float largest(Vector v) {
    const float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
  }
  /// Lane i = sum of the lanes of v[i].
  static Vector sum_each(const Vector* v) { return Vector{sum(v[0]), sum(v[1]), sum(v[2]), sum(v[3])}; }

  static Operand load_operand(const Element* p) { return load(p); }
  static Operand broadcast_operand(const Element* p) { return broadcast(*p); }
  static Vector multiply_add(Operand a, Operand b, Vector sum) { return fused(a, b, sum); }
  static void stage(Element* p, Vector v) { store(p, v); }
  static void stage_bf16(Element* p, const std::uint16_t* source) {
    for (int i = 0; i < lanes; ++i) p[i] = float_from_bf16(source[i]);
  }
  static void store_bf16(std::uint16_t* p, Vector v) {
    for (int i = 0; i < lanes; ++i) p[i] = bf16_from_float(v[i]);
  }

  template <Fp8Encoding encoding>
  static constexpr int fp8_exponent = 0;
  template <Fp8Encoding encoding>
  static Vector load_fp8(const std::uint8_t* p) {
    const std::array<float, 256>& values = encoding == Fp8Encoding::ocp ? ocp_values : fnuz_values;
    return Vector{values[p[0]], values[p[1]], values[p[2]], values[p[3]]};
  }
  template <Fp8Encoding>
  static bool has_nan_code(const std::uint8_t*, int) {
    return false;  // the table holds NaN
  }
};

}  // namespace
}  // namespace raggedmla::cpu
