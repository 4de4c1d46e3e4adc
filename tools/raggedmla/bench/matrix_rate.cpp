#include "matrix_rate.hpp"

#include <dlfcn.h>

#include <initializer_list>

#include "device_data.hpp"
#include "host/device_memory.hpp"

namespace raggedmla::bench {

namespace {

// The few names of cuBLASLt's C interface that are needed, so that its headers and library are not (values:
// cublasLt.h).
using Handle = void*;
constexpr int compute_32f = 68, real_32f = 0, real_16bf = 14, operation_transpose = 1;
constexpr int attribute_transa = 3, preference_max_workspace = 1;
struct Algorithm {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

void* open_library() {
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace

MatrixRate measure_matrix_rate(Device device) {
  void* library = open_library();
  if (library == nullptr) return {0, "cuBLASLt is not installed (libcublasLt.so is not on the library path)"};

  const auto create = symbol<int (*)(Handle*)>(library, "cublasLtCreate");
  const auto create_operation = symbol<int (*)(Handle*, int, int)>(library, "cublasLtMatmulDescCreate");
  const auto set_operation =
      symbol<int (*)(Handle, int, const void*, std::size_t)>(library, "cublasLtMatmulDescSetAttribute");
  const auto create_layout =
      symbol<int (*)(Handle*, int, std::uint64_t, std::uint64_t, std::int64_t)>(library, "cublasLtMatrixLayoutCreate");
  const auto create_preference = symbol<int (*)(Handle*)>(library, "cublasLtMatmulPreferenceCreate");
  const auto set_preference =
      symbol<int (*)(Handle, int, const void*, std::size_t)>(library, "cublasLtMatmulPreferenceSetAttribute");
  const auto choose =
      symbol<int (*)(Handle, Handle, Handle, Handle, Handle, Handle, Handle, int, HeuristicResult*, int*)>(
          library, "cublasLtMatmulAlgoGetHeuristic");
  const auto multiply =
      symbol<int (*)(Handle, Handle, const void*, const void*, Handle, const void*, Handle, const void*, const void*,
                     Handle, void*, Handle, const Algorithm*, void*, std::size_t, void*)>(library, "cublasLtMatmul");
  const auto destroy = symbol<int (*)(Handle)>(library, "cublasLtDestroy");
  if (!create || !create_operation || !set_operation || !create_layout || !create_preference || !set_preference ||
      !choose || !multiply || !destroy) {
    return {0, "cuBLASLt lacks a symbol"};
  }

  constexpr std::int64_t n = 8192;
  const std::size_t workspace_bytes = std::size_t{64} << 20;
  host::Memory a(device, n * n * 2), b(device, n * n * 2), c(device, n * n * 2), workspace(device, workspace_bytes);
  const host::OwnedStream stream(device);
  fill_bf16(a.data(), n * n, 1, stream.get());
  fill_bf16(b.data(), n * n, 2, stream.get());

  Handle handle{}, operation{}, layout{}, preference{};
  HeuristicResult result{};
  int found = 0;
  const bool ready = create(&handle) == 0 && create_operation(&operation, compute_32f, real_32f) == 0 &&
                     set_operation(operation, attribute_transa, &operation_transpose, sizeof(int)) == 0 &&
                     create_layout(&layout, real_16bf, n, n, n) == 0 && create_preference(&preference) == 0 &&
                     set_preference(preference, preference_max_workspace, &workspace_bytes, sizeof(std::size_t)) == 0 &&
                     choose(handle, operation, layout, layout, layout, layout, preference, 1, &result, &found) == 0 &&
                     found > 0;
  if (!ready) return {0, "cuBLASLt offers no bf16 product here"};

  const float one = 1, zero = 0;
  int status = 0;
  const auto product = [&](int) {
    status |= multiply(handle, operation, &one, a.data(), layout, b.data(), layout, &zero, c.data(), layout, c.data(),
                       layout, &result.algorithm, workspace.data(), workspace_bytes, stream.get().handle);
  };
  static_cast<void>(host::time_runs(stream, device, 3, product));
  const double seconds = host::median(host::time_runs(stream, device, 15, product));
  destroy(handle);
  if (status != 0) return {0, "cuBLASLt refused the product"};
  return {2.0 * n * n * n / seconds, "cuBLASLt, 8192^3 bf16, random data"};
}

}  // namespace raggedmla::bench
