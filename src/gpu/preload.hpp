// Getting kernels ready ahead of a capture or the first call: one function per room or kernel file, called by
// preload().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

/// Loads a kernel onto the current device (modules load lazily otherwise, which is slow and not legal in a capture)
/// and, for more than the 48 KiB that every launch may use, raises its limit of dynamic shared memory.
void load_kernel_image(const void* kernel, int dynamic_shared_bytes);

template <class... Parameters>
void load_kernel(void (*kernel)(Parameters...), int dynamic_shared_bytes = 0) {
  load_kernel_image(reinterpret_cast<const void*>(kernel), dynamic_shared_bytes);
}

/// Loads kernels on their first use on a device, so that a call needs no preload().
class FirstUse {
 public:
  template <class Load>
  void on(int device, Load&& load) {
    const auto at = static_cast<std::size_t>(device);
    if (at < loaded_.size() && loaded_[at].load(std::memory_order_acquire)) return;
    load();
    if (at < loaded_.size()) loaded_[at].store(true, std::memory_order_release);
  }

 private:
  std::array<std::atomic<bool>, 64> loaded_{};  // devices; further ones load again, which is slow and harmless
};

// Each calls load_kernel for every kernel of its file; the device is current. preload.cu calls them all.
void preload_device_room();
void preload_quantize();
void preload_read_rows();
void preload_compact_lists();
void preload_row_lists();
void preload_attention();
void preload_merge();

}  // namespace raggedmla::gpu
