// Shared memory as 32-bit byte addresses: what matrix loads and asynchronous copies take, and half the registers of a
// pointer.
#pragma once

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
#endif

/// A tile of rows of 512 bf16 channels. 16-byte chunk c of row r stands at chunk c ^ (r % 8), so that eight rows read
/// at one chunk, as matrix loads do, touch all banks once. Tiles start on multiples of 1 KiB.
namespace row_tile {
inline constexpr int row_bytes = 1024;
inline constexpr int chunks = 64;  // of 16 bytes, 8 channels

constexpr std::uint32_t offset(int row, int chunk) {
  return static_cast<std::uint32_t>(row * row_bytes + ((chunk ^ (row & 7)) << 4));
}
/// From a lane's address in chunks [0, step) of a row to the same place `chunk` chunks further (a multiple of `step`):
/// the swizzle is an exclusive or, so the lane's own bits need not be known.
constexpr std::uint32_t advance(std::uint32_t address, int chunk) {
  return (address ^ static_cast<std::uint32_t>((chunk & 7) << 4)) + static_cast<std::uint32_t>((chunk >> 3) * 128);
}
/// The same chunk `rows` rows further, from a row that is a multiple of the next power of two after `rows`.
constexpr std::uint32_t next_row(std::uint32_t address, int rows) {
  return (address + static_cast<std::uint32_t>(rows * row_bytes)) ^ static_cast<std::uint32_t>((rows & 7) << 4);
}
}  // namespace row_tile

}  // namespace raggedmla::gpu
