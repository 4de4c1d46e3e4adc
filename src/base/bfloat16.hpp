// bfloat16 as bits: conversion to and from float, round to nearest even.
#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.hpp"

namespace raggedmla {

RAGGEDMLA_HOST_DEVICE inline float float_from_bits(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

RAGGEDMLA_HOST_DEVICE inline std::uint32_t bits_of_float(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

RAGGEDMLA_HOST_DEVICE inline float float_from_bf16(std::uint16_t bits) {
  return float_from_bits(static_cast<std::uint32_t>(bits) << 16);
}

/// Round to nearest even; NaN stays NaN (quiet).
RAGGEDMLA_HOST_DEVICE inline std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace raggedmla
