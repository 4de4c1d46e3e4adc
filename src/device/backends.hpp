// What the device room asks of the GPU backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "raggedmla/device.hpp"

namespace raggedmla::gpu {

/// Empty without a driver or a device.
std::vector<DeviceInfo> devices();
/// Throws DeviceError if there is no such device or no image for it.
void preload(int device);
void zero_counters(void* counters, std::size_t bytes, int device, Stream stream);
std::uint64_t capture_id(int device, Stream stream);

}  // namespace raggedmla::gpu
