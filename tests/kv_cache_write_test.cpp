// quantize_rows on every backend: the scale rule, golden values, every layout against reference, golden files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/bfloat16.hpp"
#include "base/checks.hpp"
#include "io/safetensors.hpp"
#include "kv_cache/backends.hpp"
#include "kv_cache/flatten.hpp"
#include "kv_cache/scale.hpp"
#include "support/error_message.hpp"
#include "support/golden.hpp"
#include "support/mirror.hpp"
#include "support/pages.hpp"

namespace raggedmla::test {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr Fp8Encoding both_encodings[] = {Fp8Encoding::ocp, Fp8Encoding::fnuz};
constexpr ScaleFloor both_floors[] = {ScaleFloor::amax, ScaleFloor::quotient};

class KvCacheWrite : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!present(GetParam())) GTEST_SKIP() << "no GPU";
  }
  void run(const QuantizeRows& call) {
    Mirror mirror(GetParam().device);
    QuantizeRows arguments = call;
    arguments.rows = mirror.in(call.rows);
    arguments.slots = mirror.in(call.slots);
    arguments.cache.pages = mirror.out(call.cache.pages);
    quantize_rows(arguments, mirror.stream());
    mirror.finish();
  }
};

/// The same call through the fp64 definition.
void run_reference(const QuantizeRows& call) {
  Checker checker("reference");
  QuantizeProblem problem;
  problem.rows = static_cast<const std::uint8_t*>(call.rows.data);
  problem.row_stride = call.rows.stride[0] * 2;
  problem.count = call.rows.shape[0];
  problem.slots = checker.integers("slots", call.slots, {problem.count});
  problem.cache = flatten_pages(checker, "cache", call.cache);
  problem.floor = call.floor;
  reference::quantize_rows(problem);
}

/// Rows whose groups reach from subnormal numbers to the largest, with zeros of both signs, NaN and infinities.
void fill_rows(Tensor& rows, Random& random) {
  double magnitude = 1;
  for (std::int64_t m = 0; m < rows.view().shape[0]; ++m) {
    for (std::int64_t c = 0; c < row_width; ++c) {
      if (c % 64 == 0)
        magnitude = std::exp2(random.integer(0, 7) == 0 ? random.integer(-132, 120) : random.integer(-16, 10));
      double value = magnitude * random.normal();
      const std::int64_t special = random.integer(0, 2000);
      if (special == 0) value = nan;
      if (special == 1) value = random.integer(0, 1) ? infinity : -infinity;
      if (special < 40 && special > 1) value = special % 2 ? 0.0 : -0.0;
      rows.set({m, c}, value);
    }
  }
}

bool same_memory(const Tensor& a, const Tensor& b) {
  // Whole pages, but no padding: that is what padding_intact is for.
  for (std::int64_t n = 0; n < a.size(); ++n) {
    if (a.flat(n) != b.flat(n)) return false;
  }
  return true;
}

}  // namespace

// The integer form of the scale rule equals ceil(log2(a / m)) for every bf16 number, encoding and floor.
TEST(KvCacheScale, IntegerFormEqualsTheRule) {
  for (const Fp8Encoding encoding : both_encodings) {
    for (const ScaleFloor floor : both_floors) {
      const double largest = encoding == Fp8Encoding::ocp ? 448 : 224;
      for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
        const double amax = float_from_bf16(static_cast<std::uint16_t>(bits));
        const double quotient =
            floor == ScaleFloor::amax ? std::max(amax, 1e-4) / largest : std::max(amax / largest, 1e-4);
        ASSERT_EQ(scale_exponent(bits, encoding, floor), std::ceil(std::log2(quotient))) << amax;
      }
      EXPECT_EQ(scale_byte(scale_exponent(0x7F80, encoding, floor)), 254);  // infinity
    }
  }
  EXPECT_EQ(magnitude_bits(0xFFC0), 0u) << "NaN is ignored";
  EXPECT_EQ(magnitude_bits(0xFF80), 0x7F80u);
}

struct GoldenValue {
  float amax;  // the group's first channel; the others are 0
  Fp8Encoding encoding;
  ScaleFloor floor;
  int scale_byte;
  int code;
};

TEST_P(KvCacheWrite, GoldenValues) {
  using enum Fp8Encoding;
  using enum ScaleFloor;
  const GoldenValue table[] = {
      {1.0f, ocp, ScaleFloor::amax, 119, 0x78},   {448.0f, ocp, ScaleFloor::amax, 127, 0x7E},
      {450.0f, ocp, ScaleFloor::amax, 128, 0x76}, {-1.0f, ocp, ScaleFloor::amax, 119, 0xF8},
      {0.0f, ocp, ScaleFloor::amax, 105, 0x00},   {0.0f, ocp, quotient, 114, 0x00},
      {-0.0f, ocp, ScaleFloor::amax, 105, 0x80},  {-0.0f, fnuz, ScaleFloor::amax, 106, 0x00},
      {0.0f, fnuz, quotient, 114, 0x00},          {224.0f, fnuz, ScaleFloor::amax, 127, 0x7E},
      {1.0f, fnuz, ScaleFloor::amax, 120, 0x78},  {225.0f, fnuz, ScaleFloor::amax, 128, 0x76},
      {nan, ocp, ScaleFloor::amax, 105, 0x7F},    {nan, fnuz, quotient, 114, 0x80},
      {infinity, ocp, quotient, 254, 0x7E},       {-infinity, fnuz, ScaleFloor::amax, 254, 0xFF},
      {0x1p-126f, ocp, ScaleFloor::amax, 105, 0}, {0x1.fep127f, ocp, ScaleFloor::amax, 247, 0x78},
      {0.02734375f, ocp, quotient, 114, 0x76},    {0.02734375f, ocp, ScaleFloor::amax, 113, 0x7E},
  };
  for (const GoldenValue& value : table) {
    Tensor rows(DataType::bf16, {1, row_width}), slots(DataType::i32, {1});
    rows.fill(0).set({0, 64}, value.amax);
    slots.fill(1);
    Fp8Pages pages(1, {2, 1728}, value.encoding);
    run({rows, slots, pages.cache(), value.floor});
    EXPECT_EQ(pages.scales(1)[1], value.scale_byte) << value.amax;
    EXPECT_EQ(pages.data(1)[64], value.code) << value.amax;
    EXPECT_EQ(pages.scales(1)[7], 0);
    EXPECT_EQ(pages.data(0)[0], 0xA5) << "the neighbour is not written";
    EXPECT_TRUE(pages.memory.padding_intact());
  }
}

TEST_P(KvCacheWrite, EveryLayoutEqualsReference) {
  const PageLayout layouts[] = {{64, 37440}, {64, 0}, {2, 1728}, {1, 592}, {3, 1760}, {64, 3 * 37440}, {256, 149760}};
  std::uint64_t seed = 1;
  for (const PageLayout& layout : layouts) {
    for (const Fp8Encoding encoding : both_encodings) {
      for (const ScaleFloor floor : both_floors) {
        for (const DataType slot_type : {DataType::i32, DataType::i64}) {
          Random random(seed++);
          const std::int64_t count = random.integer(1, 300);
          Tensor rows(DataType::bf16, {count, row_width}, {row_width + 8 * random.integer(0, 3), 1});
          fill_rows(rows, random);
          const std::int64_t pages_count = 300 / layout.rows_per_page + 1;
          Fp8Pages pages(pages_count, layout, encoding), expected(pages_count, layout, encoding);
          // Slots out of order, some twice, some outside.
          Tensor slots(slot_type, {count}, {random.integer(1, 2)});
          for (std::int64_t m = 0; m < count; ++m) slots.set({m}, random.integer(-3, pages.rows() + 2));
          slots.set({count / 2}, slot_type == DataType::i32 ? 2147483647.0 : 0x1p62);
          run({rows, slots, pages.cache(), floor});
          run_reference({rows, slots, expected.cache(), floor});
          EXPECT_TRUE(same_memory(pages.memory, expected.memory))
              << "rows per page " << layout.rows_per_page << " stride " << layout.stride << " count " << count;
          EXPECT_TRUE(pages.memory.padding_intact());
        }
      }
    }
  }
}

// The later of two rows for a slot is stored, however far apart they are, and whole.
TEST_P(KvCacheWrite, LaterRowWins) {
  for (const std::int64_t count : {2, 65, 1000, 9000}) {
    Random random(static_cast<std::uint64_t>(count));
    Tensor rows(DataType::bf16, {count, row_width}), slots(DataType::i64, {count});
    for (std::int64_t m = 0; m < count; ++m) {
      for (std::int64_t c = 0; c < row_width; ++c) rows.set({m, c}, std::ldexp(1.0 + (m % 128) / 128.0, m % 11));
      slots.set({m}, random.integer(0, count / 3));
    }
    Fp8Pages pages(count / 64 + 1, {64, 37440}, Fp8Encoding::ocp),
        expected(count / 64 + 1, {64, 37440}, Fp8Encoding::ocp);
    run({rows, slots, pages.cache()});
    run_reference({rows, slots, expected.cache()});
    EXPECT_TRUE(same_memory(pages.memory, expected.memory)) << count;
  }
}

TEST_P(KvCacheWrite, Bf16PagesTakeRowsAsTheyAre) {
  Random random(3);
  Tensor rows(DataType::bf16, {5, row_width}), slots(DataType::i32, {5});
  fill_rows(rows, random);
  slots.fill_values({7, -1, 0, 8, 3});
  Tensor pages(DataType::bf16, {2, 4, row_width}, {4 * 520 + 16, 520, 1});
  run({rows, slots, {pages, 4}});
  const auto row = [](const Tensor& tensor, std::int64_t offset) {
    return static_cast<const std::uint16_t*>(tensor.view().data) + offset;
  };
  const std::int64_t page = 4 * 520 + 16;
  EXPECT_EQ(std::memcmp(row(pages, page + 3 * 520), row(rows, 0), 2 * row_width), 0);
  EXPECT_EQ(std::memcmp(row(pages, 0), row(rows, 2 * row_width), 2 * row_width), 0);
  EXPECT_EQ(std::memcmp(row(pages, 3 * 520), row(rows, 4 * row_width), 2 * row_width), 0);
  EXPECT_EQ(*row(pages, 520), 0xA5A5) << "slot 1 is not written";
  EXPECT_TRUE(pages.padding_intact());
}

TEST_P(KvCacheWrite, NothingToDo) {
  Fp8Pages pages(1, {64, 37440}, Fp8Encoding::ocp), none(0, {64, 37440}, Fp8Encoding::ocp);
  run({Tensor(DataType::bf16, {0, row_width}), Tensor(DataType::i32, {0}), pages.cache()});
  run({Tensor(DataType::bf16, {2, row_width}), Tensor(DataType::i32, {2}), none.cache()});
  EXPECT_EQ(pages.data(0)[0], 0xA5);
}

TEST_P(KvCacheWrite, Messages) {
  Tensor rows(DataType::bf16, {2, row_width}), slots(DataType::i32, {2});
  Fp8Pages pages(2, {2, 1728}, Fp8Encoding::ocp);
  const QuantizeRows good{rows, slots, pages.cache()};
  const auto message = [&](auto change) {
    QuantizeRows bad = good;
    change(bad);
    for (TensorView* view : {&bad.rows, &bad.slots, &bad.cache.pages}) view->device = GetParam().device;
    return message_of([&] { quantize_rows(bad); });
  };
  EXPECT_EQ(message([](QuantizeRows& call) { call.rows.shape[1] = 500; }),
            "quantize_rows: rows has shape [2, 500], expected [*, 512]");
  EXPECT_EQ(message([](QuantizeRows& call) { call.rows.dtype = DataType::f32; }),
            "quantize_rows: rows is f32, expected bf16");
  EXPECT_EQ(message([](QuantizeRows& call) { call.slots.shape[0] = 3; }),
            "quantize_rows: slots has shape [3], expected [2]");
  EXPECT_EQ(message([](QuantizeRows& call) { call.slots.dtype = DataType::f32; }),
            "quantize_rows: slots is f32, expected i32 or i64");
  EXPECT_NE(message([](QuantizeRows& call) { call.rows.stride[0] = 516; }).find("expected a multiple of 16 bytes"),
            std::string::npos);
  EXPECT_NE(message([](QuantizeRows& call) { call.cache.rows_per_page = 3; }).find("1752"), std::string::npos);
  EXPECT_NE(message([](QuantizeRows& call) { call.cache.rows_per_page = 0; }).find("expected at least 1"),
            std::string::npos);
  EXPECT_NE(message([](QuantizeRows& call) { call.cache.pages.stride[0] = 1720; }).find("multiple of 16"),
            std::string::npos);
  EXPECT_NE(message([](QuantizeRows& call) { call.cache.pages.dtype = DataType::i32; }).find("is i32, expected u8"),
            std::string::npos);
  EXPECT_NE(message([](QuantizeRows& call) { call.rows.data = nullptr; }).find("null pointer"), std::string::npos);
}

TEST_P(KvCacheWrite, CapturesAsOneKernel) {
  if (GetParam().device.type == DeviceType::cpu) GTEST_SKIP() << "graphs are a GPU's";
  Mirror mirror(GetParam().device);
  Random random(4);
  Tensor rows(DataType::bf16, {40, row_width}), slots(DataType::i32, {40});
  fill_rows(rows, random);
  for (int m = 0; m < 40; ++m) slots.set({m}, m);
  Fp8Pages pages(1, {64, 37440}, Fp8Encoding::ocp), expected(1, {64, 37440}, Fp8Encoding::ocp);
  const QuantizeRows call{mirror.in(rows), mirror.in(slots), {mirror.out(pages.memory), 64, Fp8Encoding::ocp}};
  const host::Graph graph(mirror.device(), [&](Stream stream) { quantize_rows(call, stream); });
  EXPECT_EQ(graph.nodes().kernels, 1);
  EXPECT_EQ(graph.nodes().others, 0);
  for (int m = 0; m < 40; ++m) slots.set({m}, 63 - m);
  mirror.refresh();
  graph.replay(mirror.owned_stream());
  mirror.finish();
  run_reference({rows, slots, expected.cache()});
  EXPECT_TRUE(same_memory(pages.memory, expected.memory));
}

// Another project's quantiser wrote these pages, with the quotient floor; the amax floor differs in small groups only.
TEST_P(KvCacheWrite, GoldenFiles) {
  int compared = 0;
  for (const std::string& path : golden_files()) {
    const io::SafetensorsFile file(path);
    for (const std::string source : {"main", "extra"}) {
      if (!file.contains(source + "_pages")) continue;
      const TensorView stored = file.view(source + "_pages"), golden_rows = file.view(source + "_rows_bf16");
      const int rows_per_page = std::stoi(file.metadata().at(source + "_rows_per_page"));
      const std::int64_t count = golden_rows.shape[0];
      Tensor rows(DataType::bf16, {count, row_width}), slots(DataType::i32, {count});
      std::memcpy(rows.view().data, golden_rows.data, static_cast<std::size_t>(count * row_width * 2));
      for (std::int64_t m = 0; m < count; ++m) slots.set({m}, static_cast<double>(m));
      for (const ScaleFloor floor : both_floors) {
        const PageLayout layout{rows_per_page, stored.shape[1]};
        Fp8Pages pages(stored.shape[0], layout, Fp8Encoding::ocp), expected(stored.shape[0], layout, Fp8Encoding::ocp);
        const std::int64_t payload = 584 * rows_per_page;
        for (std::int64_t p = 0; p < stored.shape[0]; ++p) {
          std::memcpy(expected.data(p * rows_per_page),
                      static_cast<const std::uint8_t*>(stored.data) + p * stored.shape[1],
                      static_cast<std::size_t>(payload));
        }
        run({rows, slots, pages.cache(), floor});
        for (std::int64_t m = 0; m < count; ++m) {
          EXPECT_EQ(std::memcmp(pages.data(m) + 448, expected.data(m) + 448, 128), 0);
          for (int g = 0; g < 7; ++g) {
            double amax = 0;
            for (int c = 0; c < 64; ++c) amax = std::max(amax, std::abs(rows.get({m, g * 64 + c})));
            if (floor == ScaleFloor::amax && amax <= 0.02734375) continue;
            EXPECT_EQ(pages.scales(m)[g], expected.scales(m)[g]) << path << " " << source << " row " << m;
            EXPECT_EQ(std::memcmp(pages.data(m) + g * 64, expected.data(m) + g * 64, 64), 0);
            ++compared;
          }
        }
      }
    }
  }
  if (compared == 0) GTEST_SKIP() << "no golden files";
}

INSTANTIATE_TEST_SUITE_P(, KvCacheWrite, testing::ValuesIn(list_backends()),
                         [](const auto& test) { return backend_name(test.param); });

}  // namespace raggedmla::test
