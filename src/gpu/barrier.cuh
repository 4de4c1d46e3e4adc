// Hopper's transaction barriers in shared memory (mbarrier), warpgroup register budgets and the fences between the
// ordinary view of shared memory and the one that matrix instructions and bulk copies have.
#pragma once

#include <cstdint>

namespace raggedmla::gpu::sm90 {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// A barrier in shared memory, by its address. A phase ends when `arrivals` threads have arrived and all announced
/// bytes have come. Waiters name the parity (0, 1, 0, ...) of the phase that they wait for; waiting for parity 1 on a
/// fresh barrier returns at once, which is how the first pass over an empty ring works.
struct BarrierAt {
  std::uint32_t address;

  __device__ void initialize(std::uint32_t arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
  }
  /// `count` of the arrivals at once.
  __device__ void arrive(std::uint32_t count = 1) const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(count) : "memory");
  }
  /// Arrives and announces bytes that bulk copies will bring.
  __device__ void arrive_expecting(std::uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
  }
  /// Arrives when all cp.async of this thread so far have landed; one of the barrier's counted arrivals.
  __device__ void arrive_after_async_copies() const {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address) : "memory");
  }
  __device__ void wait(std::uint32_t parity) const {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra.uni DONE;\n"
        "bra.uni WAIT;\n"
        "DONE:\n"
        "}" ::"r"(address),
        "r"(parity)
        : "memory");
  }
};

/// The barrier itself.
struct Barrier {
  std::uint64_t state;

  __device__ operator BarrierAt() { return {shared_address(&state)}; }
  __device__ void initialize(std::uint32_t arrivals) { BarrierAt(*this).initialize(arrivals); }
  __device__ void arrive(std::uint32_t count = 1) { BarrierAt(*this).arrive(count); }
  __device__ void arrive_expecting(std::uint32_t bytes) { BarrierAt(*this).arrive_expecting(bytes); }
  __device__ void arrive_after_async_copies() { BarrierAt(*this).arrive_after_async_copies(); }
  __device__ void wait(std::uint32_t parity) { BarrierAt(*this).wait(parity); }
};

/// Makes initialised barriers known to the copy engine; once, before the block's first __syncthreads.
__device__ inline void fence_barrier_initialization() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Orders this thread's ordinary and cp.async accesses to shared memory with those of matrix instructions and bulk
/// copies. Needed by whoever writes with ordinary stores before it signals, and after waiting for cp.async of others.
__device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// A barrier among `threads` threads of the block (a multiple of 32); id 0 is __syncthreads.
__device__ inline void synchronize(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// The same; returns whether any of the threads votes yes.
__device__ inline bool synchronize_or(int id, int threads, bool vote) {
  std::uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred mine, any;\n"
      "setp.ne.u32 mine, %3, 0;\n"
      "barrier.cta.red.or.pred any, %1, %2, mine;\n"
      "selp.u32 %0, 1, 0, any;\n"
      "}"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<std::uint32_t>(vote))
      : "memory");
  return any != 0;
}

/// Moves registers between warpgroups: every thread of the warpgroup owns exactly `registers` from here on.
template <int registers>
__device__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace raggedmla::gpu::sm90
