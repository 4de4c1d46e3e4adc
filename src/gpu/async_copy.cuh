// Copies from global to shared memory that run while the thread computes, 16 bytes each.
//
// NVIDIA: cp.async; a thread commits its copies in groups and later waits until at most n groups are under way.
// CDNA has no such copy: the bytes wait in registers from start() to land(), which writes them to shared memory. Code
// that calls begin() and start() early, land() after its products and wait() before a barrier is right on both.
//
// Where there is nothing to copy the target is filled with zeros; the source is zero_row then. So there is no mask
// between a row and the matrix product.
#pragma once

#include "gpu/shared_memory.cuh"

namespace raggedmla::gpu {

/// A row of zeros in global memory.
static __device__ const Words<4> zero_row[row_tile::chunks] = {};

#if RAGGEDMLA_GPU_IS_HIP

namespace detail {
/// A load that is known to be from global memory: it does not wait for shared memory, as one through a generic pointer
/// does.
template <class T>
__device__ T load_global(const void* source) {
#if defined(__HIP_DEVICE_COMPILE__)
  using Word = typename SharedWord<sizeof(T)>::type;
  return __builtin_bit_cast(T, *(__attribute__((address_space(1))) const Word*)source);
#else
  return *static_cast<const T*>(source);
#endif
}
}  // namespace detail

template <int copies>
class AsyncCopies {
 public:
  __device__ AsyncCopies() {
#pragma unroll
    for (int i = 0; i < copies; ++i) target_[i] = nowhere;
  }
  /// Before the group's first copy. Loads are counted in order, and across branches the compiler only knows that some
  /// may be under way; it would wait for all of them, rows included, at the next use of a register that another load
  /// once had. Waiting here, when only old loads are left, keeps it from waiting among the products.
  __device__ void begin() {
#if defined(__HIP_DEVICE_COMPILE__)
    __builtin_amdgcn_s_waitcnt(0x0F70);  // vmcnt(0), the other counters at their largest
#endif
  }
  /// Copy number i (known at compile time) of this group. Always a load: a branch around it would make the compiler
  /// lose count.
  __device__ void start(int i, SharedAddress target, const void* source, bool) {
    held_[i] = detail::load_global<Words<4>>(source);
    target_[i] = target;
  }
  __device__ void commit() {}
  __device__ void land() {
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      if (target_[i] != nowhere) store_shared(target_[i], held_[i]);
      target_[i] = nowhere;
    }
  }
  template <int groups>
  __device__ void wait() {}

 private:
  static constexpr SharedAddress nowhere = ~SharedAddress{0};
  Words<4> held_[copies];
  SharedAddress target_[copies];
};

/// 8 bytes, outside the groups: in place at once.
__device__ inline void copy_8_bytes(SharedAddress target, const void* source) {
  store_shared(target, detail::load_global<Words<2>>(source));
}

#else

/// Ends a group of this thread's copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `groups` of this thread's groups are under way.
template <int groups>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
/// Waits for all of this thread's copies, in groups or not.
__device__ inline void wait_for_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

template <int copies>
class AsyncCopies {
 public:
  __device__ void begin() {}
  /// Copy number i of this group.
  /// Without a row nothing is read: a thousand blocks that read the same zeros would queue for them.
  __device__ void start(int, SharedAddress target, const void* source, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
                 "r"(valid ? 16 : 0));
  }
  __device__ void commit() { commit_copies(); }
  __device__ void land() {}
  template <int groups>
  __device__ void wait() {
    wait_for_copies<groups>();
  }
};

/// 8 bytes, part of the thread's current group.
__device__ inline void copy_8_bytes(SharedAddress target, const void* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(target), "l"(source) : "memory");
}

#endif

}  // namespace raggedmla::gpu
