#include "gpu/runtime.hpp"

#include <algorithm>
#include <memory>
#include <mutex>

#include "device/backends.hpp"
#include "device/images.hpp"

namespace raggedmla::gpu {

namespace {

#if RAGGEDMLA_GPU_IS_HIP
using DeviceProperties = hipDeviceProp_t;
using CaptureStatus = hipStreamCaptureStatus;
constexpr CaptureStatus capturing = hipStreamCaptureStatusActive;
Status get_capture_info(NativeStream stream, CaptureStatus* status, unsigned long long* id) {
  return hipStreamGetCaptureInfo(stream, status, id);
}
Status get_device_count(int* count) { return hipGetDeviceCount(count); }
Status get_device_properties(DeviceProperties* properties, int device) {
  return hipGetDeviceProperties(properties, device);
}
void clear_last_error() { static_cast<void>(hipGetLastError()); }
constexpr Status no_image = hipErrorNoBinaryForGpu;
#else
using DeviceProperties = cudaDeviceProp;
using CaptureStatus = cudaStreamCaptureStatus;
constexpr CaptureStatus capturing = cudaStreamCaptureStatusActive;
Status get_capture_info(NativeStream stream, CaptureStatus* status, unsigned long long* id) {
  return cudaStreamGetCaptureInfo(stream, status, id);
}
Status get_device_count(int* count) { return cudaGetDeviceCount(count); }
Status get_device_properties(DeviceProperties* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}
void clear_last_error() { static_cast<void>(cudaGetLastError()); }
constexpr Status no_image = cudaErrorNoKernelImageForDevice;
#endif

Properties read_properties(int device) {
  DeviceProperties native;
  RAGGEDMLA_GPU_CHECK(get_device_properties(&native, device));
  Properties result;
  result.multiprocessors = native.multiProcessorCount;
  result.lanes = native.warpSize;
  result.compute_major = native.major;
  result.compute_minor = native.minor;
  result.name = native.name;
  result.memory_bytes = native.totalGlobalMem;
#if RAGGEDMLA_GPU_IS_HIP
  result.shared_bytes_per_block = static_cast<int>(native.sharedMemPerBlock);
  result.shared_bytes_per_multiprocessor = static_cast<int>(native.maxSharedMemoryPerMultiProcessor);
  result.architecture = native.gcnArchName;  // "gfx942:sramecc+:xnack-"
  result.architecture.resize(std::min(result.architecture.find(':'), result.architecture.size()));
#else
  result.shared_bytes_per_block = static_cast<int>(native.sharedMemPerBlockOptin);
  result.shared_bytes_per_multiprocessor = static_cast<int>(native.sharedMemPerMultiprocessor);
  result.architecture = "sm_" + std::to_string(native.major * 10 + native.minor);
#endif
  result.has_image = has_image_for(result.architecture);
  return result;
}

/// One entry per device, filled on first use. Devices neither come nor go while a process runs.
struct PropertyCache {
  struct Entry {
    std::once_flag once;
    Properties properties;
  };
  int count = 0;
  std::unique_ptr<Entry[]> entries;

  PropertyCache() {
    if (get_device_count(&count) != success) {  // no driver, or no device
      clear_last_error();
      count = 0;
    }
    entries = std::make_unique<Entry[]>(static_cast<std::size_t>(count));
  }
};

PropertyCache& cache() {
  static PropertyCache instance;
  return instance;
}

}  // namespace

const Properties& properties(int device) {
  PropertyCache& all = cache();
  if (device < 0 || device >= all.count) {
    throw DeviceError("device " + std::to_string(device) + " does not exist; there are " + std::to_string(all.count));
  }
  PropertyCache::Entry& entry = all.entries[static_cast<std::size_t>(device)];
  std::call_once(entry.once, [&] { entry.properties = read_properties(device); });
  return entry.properties;
}

const Properties& require_device(int device) {
  const Properties& found = properties(device);
  if (!found.has_image)
    throw DeviceError("device " + std::to_string(device) + " (" + found.name +
                      "): " + missing_image_text(found.architecture));
  return found;
}

Status launch_dependent_kernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                               NativeStream stream) {
#if defined(RAGGEDMLA_WITH_SM90)
  // Only where the kernel is certainly the one compiled for sm_90: code made from older PTX does not wait.
  int device = 0;
  if (const Status status = get_device(&device); status != success) return status;
  if (properties(device).compute_major == 9) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelExC(&config, kernel, arguments);
  }
#endif
  return launch_kernel(kernel, grid, block, arguments, shared_bytes, stream);
}

void throw_device_error(Status status, const char* call, const char* file, int line) {
  std::string message =
      std::string(call) + " failed: " + status_text(status) + " (" + file + ":" + std::to_string(line) + ")";
  int device = 0;
  if (status == no_image && get_device(&device) == success) {
    message += ": " + missing_image_text(properties(device).architecture);
  }
  clear_last_error();
  throw DeviceError(message);
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all;
  for (int device = 0; device < cache().count; ++device) {
    const Properties& found = properties(device);
    DeviceInfo info;
    info.device = {device_type, device};
    info.name = found.name;
    info.architecture = found.architecture;
    info.multiprocessors = found.multiprocessors;
    info.memory_bytes = found.memory_bytes;
    info.supported = found.has_image;
    all.push_back(std::move(info));
  }
  return all;
}

std::uint64_t capture_id(int device, Stream stream) {
  DeviceScope scope(device);
  CaptureStatus status{};
  unsigned long long id = 0;
  if (get_capture_info(native(stream), &status, &id) != success) {
    clear_last_error();  // the default stream while another stream is being captured: not part of that capture
    return 0;
  }
  return status == capturing ? id : 0;
}

}  // namespace raggedmla::gpu
