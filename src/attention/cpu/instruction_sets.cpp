#include "attention/cpu/instruction_sets.hpp"

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "raggedmla/error.hpp"
#if defined(RAGGEDMLA_CPU_X86)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace raggedmla::cpu {

namespace {

#if defined(RAGGEDMLA_CPU_X86)

constexpr std::array built{&portable_kernel, &avx2_kernel, &avx512_kernel, &avx512bf16_kernel, &amx_kernel};

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

/// Whether there are bf16 tiles, the operating system saves them, and this process may use them. Linux wants to be
/// asked for the last (it makes room for tiles in signal frames); the answer holds for all threads, and asking again is
/// harmless.
bool has_amx_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned features = 1u << 22 | 1u << 24;  // AMX-BF16, AMX-TILE
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & features) != features) return false;
  constexpr unsigned tile_state = 3u << 17;  // TILECFG, TILEDATA
  unsigned saved = 0, high = 0;
  asm volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));  // there, since AVX is usable
  if ((saved & tile_state) != tile_state) return false;
#if defined(__linux__)
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

/// How many of `built` run here: each needs all that the one before it needs. The checks include the operating system's
/// support for the wide registers.
std::size_t count_usable() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (!avx2) return 1;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!avx512) return 2;
  if (!has_avx512bf16()) return 3;
  return has_amx_bf16() ? 5 : 4;
}

/// The last of the usable ones, but for one pair (docs/kernels-cpu.md has the times of all).
///
/// Intel's bf16 dot product does as many multiplications a cycle as two fp32 products, and pairing rows costs extra: on
/// a Xeon of family 6, model 207, the bf16 kernel took 1.07 (prefill) to 1.26 (decode) times the fp32 kernel's time.
/// AMD's manuals give it twice the rate of fp32.
const TileKernel& fastest() {
  const TileKernel& newest = *usable_kernels().back();
  return &newest == &avx512bf16_kernel && !__builtin_cpu_is("amd") ? avx512_kernel : newest;
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
