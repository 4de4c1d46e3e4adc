#include "attention/cpu/instruction_sets.hpp"

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "raggedmla/error.hpp"
#if defined(RAGGEDMLA_CPU_X86)
#include <cpuid.h>
#endif

namespace raggedmla::cpu {

namespace {

#if defined(RAGGEDMLA_CPU_X86)

constexpr std::array built{&portable_kernel, &avx2_kernel, &avx512_kernel, &avx512bf16_kernel};

// Two features whose names Clang 14 does not know, by their CPUID bits. What the operating system must save for them is
// what it saves for AVX and AVX-512.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;
}
bool has_avx512bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1) != 0;
}

/// How many of `built` run here: each needs all that the one before it needs. The checks include the operating system's
/// support for the wide registers.
std::size_t count_usable() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (!avx2) return 1;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!avx512) return 2;
  return has_avx512bf16() ? 4 : 3;
}

/// Intel's bf16 product does as many multiplications a cycle as two fp32 products, and pairing rows costs extra: on a
/// Xeon of family 6, model 207, the bf16 kernel took 1.07 (prefill) to 1.26 (decode) times the fp32 kernel's time.
/// AMD's manuals give it twice the rate of fp32.
const TileKernel& fastest() {
  const std::size_t usable = usable_kernels().size();
  return usable == built.size() && !__builtin_cpu_is("amd") ? avx512_kernel : *built[usable - 1];
}

#else

constexpr std::array built{&portable_kernel};
std::size_t count_usable() { return 1; }
const TileKernel& fastest() { return portable_kernel; }

#endif

const TileKernel& choose() {
  const std::span<const TileKernel* const> usable = usable_kernels();
  const char* asked = std::getenv("RAGGEDMLA_CPU");
  if (asked == nullptr || *asked == '\0') return fastest();
  std::string names;
  for (const TileKernel* kernel : usable) {
    if (std::string_view(asked) == kernel->name) return *kernel;
    names.append(names.empty() ? "" : " or ").append(kernel->name);
  }
  throw Error("attention: RAGGEDMLA_CPU is " + std::string(asked) + ", expected " + names + " on this processor");
}

}  // namespace

std::span<const TileKernel* const> built_kernels() { return built; }

std::span<const TileKernel* const> usable_kernels() {
  static const std::size_t count = count_usable();
  return std::span<const TileKernel* const>(built).first(count);
}

const TileKernel& chosen_kernel() {
  static const TileKernel& kernel = choose();
  return kernel;
}

}  // namespace raggedmla::cpu
