// dequantize_rows and gather_rows on every backend.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "base/bfloat16.hpp"
#include "support/error_message.hpp"
#include "support/mirror.hpp"
#include "support/pages.hpp"

namespace raggedmla::test {

namespace {

constexpr Fp8Encoding both_encodings[] = {Fp8Encoding::ocp, Fp8Encoding::fnuz};

class KvCacheRead : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!present(GetParam())) GTEST_SKIP() << "no GPU";
  }
  void dequantize(const DequantizeRows& call) {
    Mirror mirror(GetParam().device);
    const DequantizeRows arguments{mirror.in(call.source), mirror.in(call.slots), mirror.out(call.out)};
    dequantize_rows(arguments, mirror.stream());
    mirror.finish();
  }
  void gather(const GatherRows& call) {
    Mirror mirror(GetParam().device);
    GatherRows arguments = call;
    arguments.source = mirror.in(call.source);
    arguments.block_table = mirror.in(call.block_table);
    arguments.first = mirror.in(call.first);
    arguments.count = mirror.in(call.count);
    arguments.out = mirror.out(call.out);
    gather_rows(arguments, mirror.stream());
    mirror.finish();
  }
};

/// A code's value times its scale as bf16 bits, from the formats' definition; nothing for NaN.
std::optional<std::uint16_t> expected_bits(int code, int scale_byte, Fp8Encoding encoding) {
  const int bias = encoding == Fp8Encoding::ocp ? 7 : 8;
  const bool nan_code = encoding == Fp8Encoding::ocp ? (code & 0x7F) == 0x7F : code == 0x80;
  if (nan_code || scale_byte == 255) return std::nullopt;
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa / 8.0, 1 - bias) : std::ldexp(1 + mantissa / 8.0, exponent - bias);
  const double value = std::ldexp(code & 0x80 ? -magnitude : magnitude, scale_byte - 127);
  return bf16_from_float(static_cast<float>(value));  // four significant bits: the cast is exact or overflows
}

std::uint16_t bits(const Tensor& tensor, std::int64_t row, std::int64_t channel) {
  const TensorView& view = tensor.view();
  return static_cast<const std::uint16_t*>(view.data)[row * view.stride[0] + channel];
}

/// Pages whose row at slot s holds the number s + 1 in every channel.
Fp8Pages numbered_pages(std::int64_t pages_count, PageLayout layout) {
  Fp8Pages pages(pages_count, layout, Fp8Encoding::ocp);
  for (std::int64_t s = 0; s < pages.rows(); ++s) {
    const int octave = std::ilogb(s + 1);  // (s + 1) = 1.mmm * 2^octave for s < 16
    const int code = 0x38 + static_cast<int>(std::ldexp(s + 1, 3 - octave)) - 8;
    std::memset(pages.data(s), code, 448);
    std::memset(pages.scales(s), 127 + octave, 7);
    for (int c = 0; c < 64; ++c) {
      reinterpret_cast<std::uint16_t*>(pages.data(s) + 448)[c] = bf16_from_float(static_cast<float>(s + 1));
    }
  }
  return pages;
}

/// The value of a row that holds one number in all channels.
double row_number(const Tensor& rows, std::initializer_list<std::int64_t> row) {
  std::int64_t offset = 0;
  int i = 0;
  for (const std::int64_t at : row) offset += at * rows.view().stride[i++];
  const auto* channels = static_cast<const std::uint16_t*>(rows.view().data) + offset;
  for (int c = 1; c < row_width; ++c) {
    if (channels[c] != channels[0]) return -1e9;
  }
  return float_from_bf16(channels[0]);
}

}  // namespace

// Row s holds all 256 codes under scale byte s, and its rope channels hold all manner of bit patterns.
TEST_P(KvCacheRead, AllCodesUnderAllScales) {
  for (const Fp8Encoding encoding : both_encodings) {
    Fp8Pages pages(4, {64, 37440}, encoding);
    Tensor slots(DataType::i32, {256});
    for (int s = 0; s < 256; ++s) {
      for (int c = 0; c < 448; ++c) pages.data(s)[c] = static_cast<std::uint8_t>(c);
      std::memset(pages.scales(s), s, 8);
      for (int c = 0; c < 64; ++c) {
        reinterpret_cast<std::uint16_t*>(pages.data(s) + 448)[c] = static_cast<std::uint16_t>(s * 256 + c * 4 + 1);
      }
      slots.set({s}, s);
    }
    Tensor out(DataType::bf16, {256, row_width});
    dequantize({pages.cache(), slots, out});
    for (int s = 0; s < 256; ++s) {
      for (int c = 0; c < 448; ++c) {
        const std::uint16_t got = bits(out, s, c);
        const auto expected = expected_bits(c % 256, s, encoding);
        if (expected) {
          ASSERT_EQ(got, *expected) << "code " << c % 256 << " scale " << s;
        } else {
          ASSERT_GT(got & 0x7FFF, 0x7F80) << "code " << c % 256 << " scale " << s;
        }
      }
      for (int c = 0; c < 64; ++c) ASSERT_EQ(bits(out, s, 448 + c), s * 256 + c * 4 + 1);
    }
  }
}

// A NaN code must not take the careful path away from, or force it onto, other groups of the row.
TEST_P(KvCacheRead, OneNanCodeAmongMany) {
  for (const Fp8Encoding encoding : both_encodings) {
    Fp8Pages pages(7, {64, 37440}, encoding);
    const auto nan_code = static_cast<std::uint8_t>(encoding == Fp8Encoding::ocp ? 0xFF : 0x80);
    Tensor slots(DataType::i64, {448});
    for (int s = 0; s < 448; ++s) {
      std::memset(pages.data(s), 0x38, 576);
      pages.data(s)[s] = nan_code;
      std::memset(pages.scales(s), 127, 8);
      slots.set({s}, s);
    }
    Tensor out(DataType::bf16, {448, row_width}, {row_width + 8, 1});
    dequantize({pages.cache(), slots, out});
    const std::uint16_t one = encoding == Fp8Encoding::ocp ? 0x3F80 : 0x3F00;
    for (int s = 0; s < 448; ++s) {
      for (int c = 0; c < 448; ++c) {
        if (c == s) {
          ASSERT_GT(bits(out, s, c) & 0x7FFF, 0x7F80);
        } else {
          ASSERT_EQ(bits(out, s, c), one);
        }
      }
    }
    EXPECT_TRUE(out.padding_intact());
  }
}

TEST_P(KvCacheRead, SlotsOutsideGiveZeroRows) {
  for (const DataType type : {DataType::i32, DataType::i64}) {
    for (const PageLayout layout : {PageLayout{2, 1728}, PageLayout{3, 1760}, PageLayout{4, 2336}}) {
      const Fp8Pages pages = numbered_pages(3, layout);
      Tensor slots(type, {7}, {3}), out(DataType::bf16, {7, row_width}, {row_width + 16, 1});
      const double last = static_cast<double>(pages.rows() - 1);
      slots.fill_values({0, last, last + 1, -1, 2, type == DataType::i32 ? -2147483648.0 : -0x1p63, 2});
      dequantize({pages.cache(), slots, out});
      const double expected[] = {1, last + 1, 0, 0, 3, 0, 3};
      for (int m = 0; m < 7; ++m) EXPECT_EQ(row_number(out, {m}), expected[m]) << m;
      EXPECT_TRUE(out.padding_intact());
    }
  }
}

TEST_P(KvCacheRead, PageOfEngines) {
  Fp8Pages pages = numbered_pages(3, {4, 2880});
  // The view that engines pass: [pages, rows, 584], whose row stride is a fiction.
  TensorView view(pages.memory.view().data, DataType::u8, {3, 4, 584}, {2880, 584, 1});
  Tensor slots(DataType::i32, {2}), out(DataType::bf16, {2, row_width});
  slots.fill_values({5, 11});
  // The mirror copies the view's extent, which ends with the last page's payload.
  dequantize({PagedKv{view, 4}, slots, out});
  EXPECT_EQ(row_number(out, {0}), 6);
  EXPECT_EQ(row_number(out, {1}), 12);
}

TEST_P(KvCacheRead, Bf16Sources) {
  Tensor flat(DataType::bf16, {5, row_width}, {row_width + 24, 1}),
      paged(DataType::bf16, {2, 3, row_width}, {2000, 528, 1});
  for (int r = 0; r < 5; ++r) {
    for (int c = 0; c < row_width; ++c) flat.set({r, c}, r + 1);
  }
  for (int r = 0; r < 6; ++r) {
    for (int c = 0; c < row_width; ++c) paged.set({r / 3, r % 3, c}, r + 1);
  }
  Tensor slots(DataType::i32, {4}), out(DataType::bf16, {4, row_width});
  slots.fill_values({4, 0, 5, -1});
  dequantize({DenseKv{flat}, slots, out});
  for (int m = 0; m < 4; ++m) EXPECT_EQ(row_number(out, {m}), (std::array{5, 1, 0, 0})[static_cast<std::size_t>(m)]);
  dequantize({PagedKv{paged, 3}, slots, out});
  for (int m = 0; m < 4; ++m) EXPECT_EQ(row_number(out, {m}), (std::array{5, 1, 6, 0})[static_cast<std::size_t>(m)]);
}

TEST_P(KvCacheRead, GatherThroughBlockTables) {
  // Six pages of two rows; three requests with four table columns in a wider buffer.
  const Fp8Pages pages = numbered_pages(6, {2, 1728});
  for (const DataType type : {DataType::i32, DataType::i64}) {
    Tensor table(type, {3, 4}, {7, 1}), first(type, {3}), count(type, {3}, {2});
    table.fill_values({5, 0, -1, 99,  // a hole and a stale entry
                       2, 3, 4, 1,    // complete
                       0, 0, 0, 0});  // nothing is asked of it
    first.fill_values({1, 3, 0});
    count.fill_values({9, 4, -5});
    Tensor out(DataType::bf16, {3, 8, row_width}, {8 * row_width + 32, row_width, 1});
    GatherRows call{pages.cache(), table, first, count, out, 1};
    gather(call);
    // Request 0: rows 1..7 (the ninth and eighth are dropped): slots 11, 0, 1, then nothing.
    const double request0[] = {12, 1, 2, 0, 0, 0, 0};
    for (int i = 0; i < 7; ++i) EXPECT_EQ(row_number(out, {0, 1 + i}), request0[i]) << i;
    // Request 1: rows 3..6: slots 7, 8, 9, 2.
    const double request1[] = {8, 9, 10, 3};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(row_number(out, {1, 1 + i}), request1[i]) << i;
    const float poison = float_from_bf16(0xA5A5);
    EXPECT_EQ(row_number(out, {0, 0}), poison) << "before the offset nothing is written";
    EXPECT_EQ(row_number(out, {1, 5}), poison) << "behind the count nothing is written";
    for (int i = 0; i < 8; ++i) EXPECT_EQ(row_number(out, {2, i}), poison) << i;
    EXPECT_TRUE(out.padding_intact());

    // A first row before 0 gives zero rows until the table begins; a far one never meets it.
    first.fill_values({-2, type == DataType::i32 ? 2147483647.0 : 0x1p62, 7});
    count.fill_values({3, 2, 2});
    gather(call);
    EXPECT_EQ(row_number(out, {0, 1}), 0);
    EXPECT_EQ(row_number(out, {0, 2}), 0);
    EXPECT_EQ(row_number(out, {0, 3}), 11);
    EXPECT_EQ(row_number(out, {1, 1}), 0);
    EXPECT_EQ(row_number(out, {2, 1}), 2);
    EXPECT_EQ(row_number(out, {2, 2}), 0);

    call.out_offset = 8;  // no room: nothing happens
    gather(call);
    EXPECT_EQ(row_number(out, {0, 0}), poison);
  }
}

TEST_P(KvCacheRead, GatherManyRows) {
  const std::int64_t requests = 3, rows = 700, columns = (rows + 3) / 4;
  const Fp8Pages pages = numbered_pages(4, {4, 2880});
  Random random(5);
  Tensor table(DataType::i32, {requests, columns}), first(DataType::i32, {requests}), count(DataType::i32, {requests});
  for (std::int64_t n = 0; n < table.size(); ++n) table.set_flat(n, static_cast<double>(random.integer(0, 3)));
  first.fill_values({0, 5, 100});
  count.fill_values({700, 690, 600});
  Tensor out(DataType::bf16, {requests, rows, row_width});
  gather({pages.cache(), table, first, count, out});
  for (std::int64_t b = 0; b < requests; ++b) {
    for (std::int64_t i = 0; i < count.get({b}); ++i) {
      const auto row = static_cast<std::int64_t>(first.get({b})) + i;
      ASSERT_EQ(row_number(out, {b, i}), table.get({b, row / 4}) * 4 + static_cast<double>(row % 4) + 1)
          << b << " " << i;
    }
  }
}

TEST_P(KvCacheRead, NothingToDo) {
  const Fp8Pages pages = numbered_pages(1, {2, 1728});
  dequantize(DequantizeRows{pages.cache(), Tensor(DataType::i32, {0}), Tensor(DataType::bf16, {0, row_width})});
  Tensor out(DataType::bf16, {2, 3, row_width}), zero(DataType::i32, {2}), three(DataType::i32, {2});
  zero.fill(0);
  three.fill(3);
  gather(GatherRows{pages.cache(), Tensor(DataType::i32, {0, 4}), Tensor(DataType::i32, {0}),
                    Tensor(DataType::i32, {0}), Tensor(DataType::bf16, {0, 3, row_width})});
  gather(GatherRows{pages.cache(), Tensor(DataType::i32, {2, 0}), zero, three, out});
  EXPECT_EQ(row_number(out, {1, 2}), 0) << "a table without columns holds no row";
}

TEST_P(KvCacheRead, Messages) {
  const Fp8Pages pages = numbered_pages(2, {2, 1728});
  const Device device = GetParam().device;
  Tensor slots(DataType::i32, {2}), out(DataType::bf16, {2, row_width});
  const auto message = [&](auto change) {
    PagedKv source = pages.cache();
    source.pages.device = device;
    DequantizeRows bad{source, slots, out};
    bad.slots.device = bad.out.device = device;
    change(bad);
    return message_of([&] { dequantize_rows(bad); });
  };
  EXPECT_EQ(message([](DequantizeRows& call) { call.out.shape[0] = 1; }),
            "dequantize_rows: out has shape [1, 512], expected [2, 512]");
  EXPECT_EQ(message([](DequantizeRows& call) { call.out.dtype = DataType::f32; }),
            "dequantize_rows: out is f32, expected bf16");
  EXPECT_NE(message([](DequantizeRows& call) { call.out.stride[0] = 0; }).find("stride 0"), std::string::npos);
  EXPECT_NE(message([&](DequantizeRows& call) {
              call.out.device = {device.type == DeviceType::cpu ? DeviceType::cuda : DeviceType::cpu, 0};
            }).find("out is on"),
            std::string::npos);
  Tensor table(DataType::i32, {2, 2}), numbers(DataType::i32, {2}), workspace(DataType::bf16, {2, 3, row_width});
  GatherRows bad{pages.cache(), table, numbers, numbers, workspace, -1};
  for (TensorView* view : {&bad.source.pages, &bad.block_table, &bad.first, &bad.count, &bad.out}) {
    view->device = device;
  }
  EXPECT_EQ(message_of([&] { gather_rows(bad); }), "gather_rows: out_offset is -1, expected 0 or more");
}

// Slots on both sides of 2 and 4 GiB in a pool of production pages: written, read back, and found by the same address.
TEST_P(KvCacheRead, PoolBeyondFourGigabytes) {
  const Device device = GetParam().device;
  if (device.type == DeviceType::cpu) GTEST_SKIP() << "takes 4.3 GB; the CPU shares the address arithmetic";
  constexpr std::int64_t page_stride = 37440, pages_count = 114720;
  host::Memory pool(device, page_stride * pages_count);
  pool.fill(0);
  const PagedKv cache{TensorView(pool.data(), DataType::u8, {pages_count, page_stride}, device)};
  const std::int64_t marks[] = {0,           57357 * 64 + 63,  57358 * 64 + 17,     57359 * 64,
                                114715 * 64, 114716 * 64 + 63, pages_count * 64 - 1};
  Tensor slots(DataType::i64, {7}), rows(DataType::bf16, {7, row_width}), out(DataType::bf16, {7, row_width});
  for (int m = 0; m < 7; ++m) {
    slots.set({m}, static_cast<double>(marks[m]));
    for (int c = 0; c < row_width; ++c) rows.set({m, c}, m + 1);
  }
  Mirror mirror(device);
  const TensorView device_slots = mirror.in(slots);
  quantize_rows({mirror.in(rows), device_slots, cache}, mirror.stream());
  dequantize_rows({cache, device_slots, mirror.out(out)}, mirror.stream());
  mirror.finish();
  for (int m = 0; m < 7; ++m) EXPECT_EQ(row_number(out, {m}), m + 1) << m;
  std::uint8_t scale = 0;
  pool.download(&scale, 1, 114716 * std::size_t{page_stride} + 64 * 576 + 63 * 8);
  EXPECT_EQ(scale, 127 - 6);  // 6 = 1.5 * 2^2: e = 2 - 8
}

TEST_P(KvCacheRead, CapturesAsOneKernel) {
  if (GetParam().device.type == DeviceType::cpu) GTEST_SKIP() << "graphs are a GPU's";
  Mirror mirror(GetParam().device);
  const Fp8Pages pages = numbered_pages(2, {2, 1728});
  Tensor table(DataType::i32, {1, 2}), first(DataType::i32, {1}), count(DataType::i32, {1});
  Tensor out(DataType::bf16, {1, 4, row_width});
  table.fill_values({1, 0});
  first.fill(0);
  count.fill(4);
  const GatherRows call{mirror.in(pages.cache()), mirror.in(table), mirror.in(first), mirror.in(count),
                        mirror.out(out)};
  const host::Graph graph(mirror.device(), [&](Stream stream) { gather_rows(call, stream); });
  EXPECT_EQ(graph.nodes().kernels, 1);
  EXPECT_EQ(graph.nodes().others, 0);
  table.fill_values({0, 7});
  first.fill(1);
  count.fill(2);
  mirror.refresh();
  graph.replay(mirror.owned_stream());
  mirror.finish();
  EXPECT_EQ(row_number(out, {0, 0}), 2);
  EXPECT_EQ(row_number(out, {0, 1}), 0);
}

INSTANTIATE_TEST_SUITE_P(, KvCacheRead, testing::ValuesIn(list_backends()),
                         [](const auto& test) { return backend_name(test.param); });

}  // namespace raggedmla::test
