// Shared memory as 32-bit byte addresses: what matrix loads and asynchronous copies take, and half the registers of a
// pointer.
#pragma once

#include "gpu/row_tile.hpp"
#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

using SharedAddress = std::uint32_t;

/// 4 n bytes that are loaded and stored by one instruction.
template <int n>
struct alignas(4 * n) Words {
  std::uint32_t w[n];
};

#if RAGGEDMLA_GPU_IS_HIP
namespace detail {
/// The compiler's own vectors: structures cannot be copied between address spaces.
template <std::size_t bytes>
struct SharedWord;
template <>
struct SharedWord<1> {
  using type = std::uint8_t;
};
template <>
struct SharedWord<2> {
  using type = std::uint16_t;
};
template <>
struct SharedWord<4> {
  using type = std::uint32_t;
};
template <>
struct SharedWord<8> {
  using type = std::uint32_t __attribute__((ext_vector_type(2)));
};
template <>
struct SharedWord<16> {
  using type = std::uint32_t __attribute__((ext_vector_type(4)));
};
template <class T>
using SharedPointer = __attribute__((address_space(3))) T*;
}  // namespace detail

__device__ inline SharedAddress shared_address(const void* pointer) {
  return static_cast<SharedAddress>(reinterpret_cast<std::uintptr_t>((detail::SharedPointer<const char>)pointer));
}
#if defined(__HIP_DEVICE_COMPILE__)
template <class T>
__device__ T load_shared(SharedAddress address) {
  using Word = typename detail::SharedWord<sizeof(T)>::type;
  return __builtin_bit_cast(T, *(detail::SharedPointer<const Word>)address);
}
template <class T>
__device__ void store_shared(SharedAddress address, T value) {
  using Word = typename detail::SharedWord<sizeof(T)>::type;
  *(detail::SharedPointer<Word>)address = __builtin_bit_cast(Word, value);
}
#else  // the host pass parses device code; its pointers are wider
template <class T>
__device__ T load_shared(SharedAddress) {
  return {};
}
template <class T>
__device__ void store_shared(SharedAddress, T) {}
#endif
#else
__device__ inline SharedAddress shared_address(const void* pointer) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}
template <class T>
__device__ T load_shared(SharedAddress address) {
  return *static_cast<const T*>(__cvta_shared_to_generic(address));
}
template <class T>
__device__ void store_shared(SharedAddress address, T value) {
  *static_cast<T*>(__cvta_shared_to_generic(address)) = value;
}
/// Sets bits of a word, atomically, and returns the word before.
__device__ inline std::uint32_t set_shared_bits(SharedAddress address, std::uint32_t bits) {
  std::uint32_t before;
  asm volatile("atom.shared.or.b32 %0, [%1], %2;" : "=r"(before) : "r"(address), "r"(bits) : "memory");
  return before;
}
#endif

}  // namespace raggedmla::gpu
