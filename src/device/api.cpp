// Devices and builds: what there is, what runs, and getting ready before the first call.
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "attention/cpu/instruction_sets.hpp"
#include "base/backend.hpp"
#include "base/checks.hpp"
#include "base/workspace.hpp"
#include "device/backends.hpp"
#include "device/images.hpp"
#include "raggedmla/device.hpp"

namespace raggedmla {

namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

DeviceInfo processor() {
  DeviceInfo info;
  info.name = processor_name();
  info.architecture = cpu::chosen_kernel().name;
  info.multiprocessors = omp_get_max_threads();
  info.memory_bytes =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  info.supported = true;
  return info;
}

}  // namespace

void require_backend(const char* operator_name, Device device) {
  if (device.type == DeviceType::cpu) return;
  if (with_gpu && device.type == gpu_device_type) return;
  const std::string who = std::string(operator_name) + ": the tensors are on " + device_text(device);
  if constexpr (!with_gpu) throw DeviceError(who + ", but this build has no GPU backend");
  throw DeviceError(who + ", but this build's GPU backend is " +
                    (gpu_device_type == DeviceType::cuda ? "cuda" : "hip"));
}

BuildInfo build_info() {
  BuildInfo info;
  info.version = RAGGEDMLA_VERSION;
  info.backends = {"reference", "cpu"};
  if (with_gpu) info.backends.emplace_back(gpu_device_type == DeviceType::cuda ? "cuda" : "hip");
  for (const cpu::TileKernel* kernel : cpu::built_kernels()) info.cpu_instruction_sets.emplace_back(kernel->name);
  info.gpu_architectures = built_images();
  return info;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all{processor()};
  if constexpr (with_gpu) {
    for (DeviceInfo& gpu : gpu::devices()) all.push_back(std::move(gpu));
  }
  return all;
}

void preload(Device device) {
  require_backend("preload", device);
  if (device.type == DeviceType::cpu) return;
  if constexpr (with_gpu) gpu::preload(device.index);
}

std::uint64_t capture_id(Device device, Stream stream) {
  if (device.type == DeviceType::cpu) return 0;
  require_backend("capture_id", device);
  if constexpr (with_gpu) return gpu::capture_id(device.index, stream);
  return 0;
}

void initialize_workspace(const Workspace& workspace, Stream stream) {
  Checker check("initialize_workspace");
  check.require(workspace.data != nullptr || workspace.bytes == 0,
                [&] { return "workspace is a null pointer of " + std::to_string(workspace.bytes) + " bytes"; });
  check.require(reinterpret_cast<std::uintptr_t>(workspace.data) % 256 == 0, "workspace is not aligned to 256 bytes");
  require_backend("initialize_workspace", workspace.device);
  const std::size_t bytes = std::min(workspace.bytes, counter_area_bytes);
  if (bytes == 0) return;
  if (workspace.device.type == DeviceType::cpu) {
    std::memset(workspace.data, 0, bytes);
    return;
  }
  if constexpr (with_gpu) gpu::zero_counters(workspace.data, bytes, workspace.device.index, stream);
}

}  // namespace raggedmla
