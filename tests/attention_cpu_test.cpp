// The CPU backend's own promises: every instruction set agrees with the reference, results do not depend on the number
// of threads, fp8 codes and scales are exact, and a call allocates nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "attention/cpu/attention.hpp"
#include "attention/cpu/instruction_sets.hpp"
#include "attention/flatten.hpp"
#include "base/float8.hpp"
#include "host/device_memory.hpp"
#include "support/allocation_count.hpp"
#include "support/attention_case.hpp"

namespace raggedmla::cpu {
#if defined(RAGGEDMLA_TEST_EMULATED_BF16)
extern const TileKernel emulated_avx512bf16_kernel, emulated_amx_kernel;  // tests/support/kernels_emulated.cpp
#endif
}  // namespace raggedmla::cpu

namespace raggedmla::test {

namespace {

using enum Store;
using enum List;

bool usable(const cpu::TileKernel* kernel) {
  const std::span<const cpu::TileKernel* const> all = cpu::usable_kernels();
  return std::find(all.begin(), all.end(), kernel) != all.end();
}

/// Kernels of this build. Where AVX-512 is, but not the bf16 products or AMX, their kernels run with these emulated.
std::vector<const cpu::TileKernel*> kernels() {
  std::vector<const cpu::TileKernel*> all(cpu::built_kernels().begin(), cpu::built_kernels().end());
#if defined(RAGGEDMLA_TEST_EMULATED_BF16)
  if (usable(&cpu::avx512_kernel)) {
    if (!usable(&cpu::avx512bf16_kernel)) all.push_back(&cpu::emulated_avx512bf16_kernel);
    if (!usable(&cpu::amx_kernel)) all.push_back(&cpu::emulated_amx_kernel);
  }
#endif
  return all;
}

bool multiplies_bf16(const cpu::TileKernel& kernel) {
  const std::string_view name = kernel.name;
  return name.starts_with("avx512bf16") || name.starts_with("amx");
}

void run(const Attention& call, const cpu::TileKernel& kernel, int threads) {
  Checker checker("test");
  const AttentionProblem problem = flatten(checker, call);
  const cpu::Plan plan = cpu::plan(problem, call.schedule, threads, kernel.head_block);
  const std::size_t bytes = cpu::attention_workspace_bytes(kernel, plan);
  host::Memory scratch({}, bytes);
  scratch.fill(0xFF);  // NaN
  cpu::attention(kernel, plan, problem, {scratch.data(), bytes, {}});
}

class CpuKernels : public testing::TestWithParam<const cpu::TileKernel*> {
 protected:
  void SetUp() override {
    const bool built = std::ranges::count(cpu::built_kernels(), GetParam()) != 0;
    if (built && !usable(GetParam())) GTEST_SKIP() << "this processor cannot run " << GetParam()->name;
  }
};

}  // namespace

TEST_P(CpuKernels, AgreesWithReference) {
  const std::vector<AttentionCase> cases{
      {"flat", 5, 16, {{flat, dense, 100}}, Sink::normal},
      {"invalid", 7, 5, {{flat, ragged, 120, 200, 64, true, 0.4}}, Sink::infinities, true},
      {"bf16_pages", 5, 9, {{bf16_pages, dense, 77, 300, 16}}},
      {"mixed", 9, 64, {{fp8_fnuz, ragged, 128, 1024}, {fp8_ocp, dense_lengths, 200, 900}}, Sink::normal},
      {"four_segments",
       5,
       20,
       {{flat, dense, 33}, {fp8_ocp, ragged, 64}, {bf16_pages, range_table, 65}, {fp8_fnuz, dense_lengths, 20}},
       Sink::normal},
      {"rope", 7, 5, {{fp8_ocp, dense, 64}}, Sink::normal, false, true, true},
      {"many_heads", 1, 131, {{flat, dense, 130}}, Sink::normal},
      {"splits", 4, 8, {{fp8_ocp, ragged, 700, 1500}, {flat, dense_lengths, 333}}, Sink::normal, true, true, false, 7},
  };
  for (const AttentionCase& c : cases) {
    AttentionData data(c);
    const Expected expected = reference_of(data.call);
    for (const int threads : {1, 3}) {
      run(data.call, *GetParam(), threads);
      expect_close(data.call, expected, c.name + " on " + GetParam()->name);
      EXPECT_TRUE(data.out.padding_intact());
    }
  }
}

TEST_P(CpuKernels, BitsDoNotDependOnThreads) {
  AttentionData data({"", 3, 24, {{fp8_ocp, dense, 333, 900}}, Sink::normal});
  data.call.schedule.batch_invariant = true;
  std::vector<double> first;
  for (const int threads : {1, 2, 7, 64}) {
    run(data.call, *GetParam(), threads);
    for (std::int64_t n = 0; n < data.out.size(); ++n) {
      if (threads == 1) first.push_back(data.out.flat(n));
      else ASSERT_EQ(data.out.flat(n), first[static_cast<std::size_t>(n)]) << threads << " threads";
    }
  }
}

/// With one row the output is that row: every code of both encodings under every scale byte, bit for bit.
TEST_P(CpuKernels, Fp8CodesAndScalesAreExact) {
  const bool flushes_subnormals = multiplies_bf16(*GetParam());
  for (const Fp8Encoding encoding : {Fp8Encoding::ocp, Fp8Encoding::fnuz}) {
    // Row r has scale byte r; its 448 codes go through all 256 values.
    Tensor pages(DataType::u8, {4, 584 * 64});
    Tensor indices(DataType::i32, {256, 1}), q(DataType::bf16, {256, 1, 512}), out(DataType::f32, {256, 1, 512});
    pages.fill(0);
    q.fill(0);
    const auto code = [](std::int64_t r, std::int64_t c) { return static_cast<std::uint8_t>(r * 5 + c); };
    for (std::int64_t r = 0; r < 256; ++r) {
      indices.set({r, 0}, static_cast<double>(r));
      for (std::int64_t c = 0; c < 448; ++c) {
        std::uint8_t byte = code(r, c);
        if (c % 7 != 0 && is_fp8_nan(byte, encoding)) byte = 0x31;  // most rows without, some with NaN
        if (r % 2 == 1 && is_fp8_nan(byte, encoding)) byte = 0x31;
        pages.set({r / 64, r % 64 * 576 + c}, byte);
      }
      for (std::int64_t g = 0; g < 7; ++g) pages.set({r / 64, 64 * 576 + r % 64 * 8 + g}, static_cast<double>(r));
    }
    const std::vector<Segment> segments{{PagedKv{pages, 64, encoding}, DenseRows{indices, {}}}};
    Attention call;
    call.q = q;
    call.segments = segments;
    call.out = out;
    run(call, *GetParam(), 1);

    for (std::int64_t r = 0; r < 256; ++r) {
      bool finite = true;  // a row with an infinite or NaN channel scores NaN, and so is its output
      float expected[448];
      for (std::int64_t c = 0; c < 448; ++c) {
        const auto byte = static_cast<std::uint8_t>(pages.get({r / 64, r % 64 * 576 + c}));
        expected[c] = float_from_fp8(byte, encoding) * float_from_ue8m0(static_cast<std::uint8_t>(r));
        finite = finite && std::isfinite(expected[c]);
      }
      for (std::int64_t c = 0; c < 448; ++c) {
        const double actual = out.get({r, 0, c});
        if (!finite) {
          ASSERT_TRUE(std::isnan(actual)) << "scale " << r << " channel " << c;
        } else if (flushes_subnormals && std::abs(expected[c]) < 0x1p-126f) {
          ASSERT_LT(std::abs(actual), 0x1p-126);
        } else {
          ASSERT_EQ(actual, expected[c]) << "scale " << r << " channel " << c;
        }
      }
    }
  }
}

TEST_P(CpuKernels, AllocatesNothing) {
  AttentionData data({"", 6, 16, {{flat, dense, 100}, {fp8_ocp, ragged, 90}}, Sink::normal});
  Checker checker("test");
  const AttentionProblem problem = flatten(checker, data.call);
  const cpu::Plan plan = cpu::plan(problem, data.call.schedule, 2, GetParam()->head_block);
  const std::size_t bytes = cpu::attention_workspace_bytes(*GetParam(), plan);
  host::Memory scratch({}, bytes);
  const Workspace workspace{scratch.data(), bytes, {}};
  cpu::attention(*GetParam(), plan, problem, workspace);  // the first parallel region starts the threads
  const long before = allocation_count();
  cpu::attention(*GetParam(), plan, problem, workspace);
  EXPECT_EQ(allocation_count(), before);
}

INSTANTIATE_TEST_SUITE_P(, CpuKernels, testing::ValuesIn(kernels()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST(CpuAttention, TheWholeCallAllocatesNothing) {
  AttentionData data({"", 6, 16, {{flat, dense, 100}, {fp8_ocp, ragged, 90}, {flat, range_flat, 20}}, Sink::normal});
  const std::size_t bytes = attention_workspace_bytes(data.call);
  host::Memory scratch({}, bytes);
  attention(data.call, {scratch.data(), bytes, {}});
  const long before = allocation_count();
  attention(data.call, {scratch.data(), bytes, {}});
  EXPECT_EQ(allocation_count(), before);
}

/// Few queries still give every thread work: first by groups of heads, then by parts of the list.
TEST(CpuPlan, FewQueriesUseAllThreads) {
  const auto plan = [](std::int64_t tokens, std::int64_t heads, std::int64_t list, int threads, int head_block = 4) {
    AttentionProblem problem;
    problem.tokens = tokens;
    problem.heads = heads;
    problem.segment_count = 1;
    problem.segments[0].list.capacity = list;
    return cpu::plan(problem, {}, threads, head_block);
  };
  EXPECT_EQ(plan(256, 16, 640, 2).groups, 1);
  EXPECT_EQ(plan(16, 64, 640, 2).groups, 1);
  EXPECT_EQ(plan(1, 64, 640, 2).groups, 2);
  EXPECT_EQ(plan(1, 64, 640, 2).splits, 1);
  EXPECT_EQ(plan(3, 64, 640, 2).units(), 6);
  EXPECT_EQ(plan(1, 128, 640, 1).groups, 2);
  EXPECT_EQ(plan(1, 8, 8192, 16).groups, 2);
  EXPECT_EQ(plan(1, 8, 8192, 16).splits, 8);
  EXPECT_EQ(plan(1, 4, 64, 16).splits, 1);
  EXPECT_EQ(plan(1, 64, 640, 2, 16).groups, 2);
  EXPECT_EQ(plan(1, 24, 640, 2, 16).groups, 2);
  EXPECT_EQ(plan(1, 16, 640, 2, 16).groups, 1);
  EXPECT_EQ(plan(1, 16, 640, 2, 16).splits, 2);
}

}  // namespace raggedmla::test
