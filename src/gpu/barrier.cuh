// Hopper's transaction barriers in shared memory (mbarrier), warpgroup register budgets and the fences between the
// ordinary view of shared memory and the one that matrix instructions and bulk copies have.
#pragma once

#include <cstdint>

namespace raggedmla::gpu::sm90 {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// A barrier in shared memory. A phase ends when `arrivals` threads have arrived and all announced bytes have come.
/// Waiters name the parity (0, 1, 0, ...) of the phase that they wait for; waiting for parity 1 on a fresh barrier
/// returns at once, which is how the first pass over an empty ring works.
struct Barrier {
  std::uint64_t state;

  __device__ void initialize(std::uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&state)), "r"(arrivals) : "memory");
  }
  /// `count` of the arrivals at once.
  __device__ void arrive(std::uint32_t count = 1) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state)), "r"(count) : "memory");
  }
  /// Arrives and announces bytes that bulk copies will bring.
  __device__ void arrive_expecting(std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state)), "r"(bytes)
                 : "memory");
  }
  /// Arrives when all cp.async of this thread so far have landed; one of the barrier's counted arrivals.
  __device__ void arrive_after_async_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&state)) : "memory");
  }
  __device__ void wait(std::uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra.uni DONE;\n"
        "bra.uni WAIT;\n"
        "DONE:\n"
        "}" ::"r"(shared_address(&state)),
        "r"(parity)
        : "memory");
  }
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
