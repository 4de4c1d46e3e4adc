// What this build can do and what this machine has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "raggedmla/tensor.hpp"

namespace raggedmla {

struct DeviceInfo {
  Device device;
  std::string name;          ///< "NVIDIA H200", or the processor's model name
  std::string architecture;  ///< "sm_90", "gfx942", or the CPU instruction set in use: "amx", "avx512bf16", "avx512",
                             ///< "avx2", "portable"
  int multiprocessors = 0;   ///< GPU multiprocessors, or CPU threads
  std::size_t memory_bytes = 0;
  bool supported = false;  ///< this build holds a kernel image for it
};

struct BuildInfo {
  std::string version;                ///< "0.1.0"
  std::vector<std::string> backends;  ///< "reference", "cpu", "cuda", "hip"
  std::vector<std::string> cpu_instruction_sets;
  std::vector<std::string> gpu_architectures;  ///< images built in: "sm_80", "sm_90a", ..., "compute_80" for PTX
};

BuildInfo build_info();

/// All devices, the CPU first. Without a driver there are no GPUs; this is not an error.
std::vector<DeviceInfo> devices();

/// Loads every kernel of the device and fills its property cache, so that the first capture or the first call in a
/// serving loop is as fast as any other and stays legal inside a capture. Throws DeviceError if the build has no image
/// for it.
void preload(Device device);

/// A number that is unique to the capture in which the stream takes part, 0 when it is not being captured (always on a
/// CPU). For callers that allocate: inside a capture memory must not be, or must be the graph's own.
std::uint64_t capture_id(Device device, Stream stream);

}  // namespace raggedmla
