// A HIP runtime whose only device is an emulator: what the library and the tests call, and nothing else. Device memory
// is host memory, streams do not exist, and a launch is handed to whoever has set a launcher (run.py). Loaded before
// libamdhip64, whose functions it replaces.
#include <hip/hip_runtime_api.h>
#include <cstdint>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {

/// A kernel launch: the bundle of code objects and the symbol of the kernel, its grid, its arguments one by one.
/// Returns 0 if it ran.
using Launcher = int (*)(const void* bundle, const char* symbol, const unsigned* grid, const unsigned* block,
                         unsigned shared_bytes, void** arguments);
Launcher launcher = nullptr;

struct Kernel {
  const void* bundle;
  std::string symbol;
};
std::map<const void*, Kernel>& kernels() {
  static std::map<const void*, Kernel> all;
  return all;
}

/// What clang leaves in the host object for every fat binary.
struct FatBinary {
  std::uint32_t magic, version;
  const void* bundle;
  const void* unused;
};

}  // namespace

extern "C" {

void emulator_set_launcher(Launcher function) { launcher = function; }

void** __hipRegisterFatBinary(const void* data) {
  return new void*(const_cast<void*>(static_cast<const FatBinary*>(data)->bundle));
}
void __hipUnregisterFatBinary(void** modules) { delete modules; }
void __hipRegisterFunction(void** modules, const void* host_function, char*, const char* device_name, unsigned, void*,
                           void*, void*, void*, int*) {
  kernels()[host_function] = {*modules, device_name};
}

hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                           hipStream_t) {
  const auto found = kernels().find(function);
  if (launcher == nullptr || found == kernels().end()) return hipErrorInvalidDeviceFunction;
  const unsigned grid_size[] = {grid.x, grid.y, grid.z}, block_size[] = {block.x, block.y, block.z};
  const Kernel& kernel = found->second;
  const int failed = launcher(kernel.bundle, kernel.symbol.c_str(), grid_size, block_size,
                              static_cast<unsigned>(shared_bytes), arguments);
  return failed ? hipErrorLaunchFailure : hipSuccess;
}
hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void*) {
  *attributes = {};
  return hipSuccess;
}

hipError_t hipGetDeviceCount(int* count) {
  *count = 1;
  return hipSuccess;
}
hipError_t hipGetDevice(int* device) {
  *device = 0;
  return hipSuccess;
}
hipError_t hipSetDevice(int device) { return device == 0 ? hipSuccess : hipErrorInvalidDevice; }
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated");
  std::strcpy(properties->gcnArchName, "gfx942");
  properties->multiProcessorCount = 4;
  properties->warpSize = 64;
  properties->major = 9;
  properties->minor = 4;
  properties->sharedMemPerBlock = properties->maxSharedMemoryPerMultiProcessor = 64 << 10;
  properties->totalGlobalMem = std::size_t{1} << 30;
  return hipSuccess;
}
hipError_t hipGetLastError() { return hipSuccess; }
const char* hipGetErrorString(hipError_t error) {
  return error == hipErrorLaunchFailure ? "the emulator failed (see above)" : "error of the emulated runtime";
}

hipError_t hipMalloc(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory != nullptr ? hipSuccess : hipErrorOutOfMemory;
}
hipError_t hipFree(void* memory) {
  std::free(memory);
  return hipSuccess;
}
hipError_t hipMemcpy(void* target, const void* source, size_t bytes, hipMemcpyKind) {
  std::memcpy(target, source, bytes);
  return hipSuccess;
}
hipError_t hipMemset(void* memory, int byte, size_t bytes) {
  std::memset(memory, byte, bytes);
  return hipSuccess;
}

hipError_t hipDeviceSynchronize() { return hipSuccess; }
hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) {
  static int one;
  *stream = reinterpret_cast<hipStream_t>(&one);
  return hipSuccess;
}
hipError_t hipStreamDestroy(hipStream_t) { return hipSuccess; }

}  // extern "C"
