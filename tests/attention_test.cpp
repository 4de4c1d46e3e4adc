// Attention on every backend against reference: one line of the table is one case.
#include <gtest/gtest.h>

#include "support/attention_case.hpp"

namespace raggedmla::test {

namespace {

using enum Store;
using enum List;

const std::vector<AttentionCase>& cases() {
  static const std::vector<AttentionCase> table = [] {
    std::vector<AttentionCase> t{
        // name, T, H, segments {store, list, K, rows, rows per page, wide, invalid, page multiple}, sink, f32, rope,
        // strided
        {"one_row", 1, 1, {{flat, dense, 1, 4}}},
        {"flat_dense", 5, 16, {{flat, dense, 100}}},
        {"flat_dense_lengths", 12, 16, {{flat, dense_lengths, 70}}, Sink::normal},
        {"flat_ragged", 11, 8, {{flat, ragged, 90}}, Sink::normal},
        {"flat_ragged_wide", 6, 24, {{flat, ragged, 50, 300, 64, true}}},
        {"invalid_entries", 7, 16, {{flat, dense, 120, 200, 64, false, 0.4}}, Sink::infinities},
        {"invalid_ragged", 7, 3, {{flat, ragged, 120, 200, 64, true, 0.7}}, Sink::infinities},
        {"nothing_valid", 4, 16, {{flat, dense, 65, 200, 64, false, 1.0}}, Sink::normal},
        {"bf16_pages", 5, 16, {{bf16_pages, dense, 77, 300, 16}}},
        {"fp8_pages", 5, 16, {{fp8_ocp, dense, 130, 640}}, Sink::normal},
        {"fp8_fnuz_pages", 5, 16, {{fp8_fnuz, dense_lengths, 130, 640}}},
        {"two_row_pages", 6, 12, {{fp8_ocp, ragged, 97, 200, 2}}},
        {"odd_page_rows", 6, 12, {{fp8_ocp, dense, 97, 200, 7}}},
        {"slab", 4, 16, {{fp8_ocp, dense, 80, 320, 64, false, 0.1, 3}}},
        {"bf16_slab", 4, 16, {{bf16_pages, ragged, 80, 320, 8, false, 0.1, 3}}},
        {"decode_fnuz_and_ocp",
         9,
         64,
         {{fp8_fnuz, ragged, 128, 1024}, {fp8_ocp, dense_lengths, 200, 900}},
         Sink::normal},
        {"decode_range_window",
         9,
         16,
         {{fp8_ocp, range_ring, 128, 1024}, {fp8_ocp, range_table, 60, 90, 2}},
         Sink::normal},
        {"prefill_ranges", 37, 16, {{flat, range_flat, 128, 600}, {flat, range_flat, 40, 300}}, Sink::normal},
        {"range_tables", 23, 8, {{bf16_pages, range_table, 150, 640, 64, true, 0.2}}},
        {"range_fp8_tables", 23, 8, {{fp8_ocp, range_table, 150, 640, 64, false, 0.2}}},
        {"four_segments",
         5,
         20,
         {{flat, dense, 33}, {fp8_ocp, ragged, 64}, {bf16_pages, range_table, 65}, {fp8_fnuz, dense_lengths, 20}},
         Sink::normal},
        {"empty_in_the_middle", 5, 16, {{flat, dense, 33}, {fp8_ocp, dense, 0}, {flat, ragged, 20}}},
        {"f32_out", 4, 16, {{flat, dense, 64}}, Sink::normal, true},
        {"inverse_rope", 7, 16, {{fp8_ocp, dense, 64}}, Sink::normal, false, true},
        {"inverse_rope_f32", 7, 5, {{flat, ragged, 64}}, Sink::none, true, true},
        {"strided", 7, 16, {{flat, dense_lengths, 64}, {fp8_ocp, range_table, 40}}, Sink::normal, false, true, true},
        {"strided_f32", 7, 33, {{bf16_pages, ragged, 64}}, Sink::normal, true, false, true},
        {"pro_csa", 2, 128, {{fp8_ocp, ragged, 128, 1024}, {fp8_ocp, dense_lengths, 1024, 4096}}, Sink::normal},
        {"flash_csa", 3, 64, {{flat, dense, 640, 2048}}, Sink::normal},
        {"long_range", 2, 16, {{fp8_ocp, range_table, 2100, 2200, 2}}, Sink::normal},
    };
    for (const std::int64_t k : {1, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 133, 1152, 1153}) {
      t.push_back({"length_" + std::to_string(k), 3, 16, {{flat, dense, k, 1500}}, Sink::normal});
      t.push_back({"length_fp8_" + std::to_string(k), 3, 8, {{fp8_ocp, ragged, k, 1500}}, Sink::normal});
      t.push_back({"length_range_" + std::to_string(k), 9, 16, {{flat, range_flat, k, 1500}}, Sink::normal});
    }
    for (const std::int64_t h :
         {1, 2, 7, 8, 9, 12, 15, 17, 24, 31, 32, 40, 47, 48, 49, 63, 65, 96, 127, 129, 130, 200}) {
      t.push_back(
          {"heads_" + std::to_string(h), 2, h, {{flat, dense, 37, 128}, {fp8_ocp, range_table, 9, 128}}, Sink::normal});
    }
    // More than 32 heads over fp8 pages alone.
    t.push_back({"fp8_heads", 5, 48, {{fp8_ocp, ragged, 300, 900}, {fp8_fnuz, range_table, 60, 90, 2}}, Sink::normal});
    t.push_back({"fp8_heads_segments",
                 3,
                 64,
                 {{fp8_ocp, dense, 33}, {fp8_fnuz, ragged, 0}, {fp8_ocp, ragged, 70}, {fp8_fnuz, dense_lengths, 100}},
                 Sink::normal});
    t.push_back({"fp8_heads_invalid", 5, 64, {{fp8_ocp, dense, 250, 640, 64, false, 0.5}}, Sink::infinities});
    t.push_back({"fp8_heads_nothing_valid", 3, 64, {{fp8_ocp, dense, 65, 200, 64, false, 1.0}}, Sink::normal});
    t.push_back({"fp8_heads_rope", 5, 33, {{fp8_ocp, dense_lengths, 200, 700}}, Sink::normal, false, true});
    t.push_back({"fp8_heads_strided", 5, 65, {{fp8_ocp, ragged, 200, 700}}, Sink::normal, false, true, true});
    t.push_back({"fp8_heads_f32", 5, 130, {{fp8_ocp, ragged, 90, 700, 7}}, Sink::infinities, true, true});
    t.push_back({"fp8_heads_many", 150, 33, {{fp8_ocp, range_ring, 40, 1024}, {fp8_ocp, dense, 25}}, Sink::normal});
    for (const std::int64_t k : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 192, 193, 257, 640, 1153}) {
      t.push_back({"length_fp8_heads_" + std::to_string(k), 2, 64, {{fp8_ocp, ragged, k, 1500}}, Sink::normal});
    }
    for (const int splits : {1, 2, 3, 8, 32}) {
      t.push_back({"splits_fp8_heads_" + std::to_string(splits),
                   3,
                   96,
                   {{fp8_ocp, ragged, 700, 1500}, {fp8_fnuz, dense_lengths, 333}},
                   Sink::normal,
                   splits % 2 == 0,
                   true,
                   false,
                   splits});
    }
    for (const int splits : {1, 2, 3, 7, 8, 32}) {
      t.push_back({"splits_" + std::to_string(splits),
                   4,
                   16,
                   {{fp8_ocp, ragged, 700, 1500}, {flat, dense_lengths, 333}},
                   Sink::normal,
                   false,
                   true,
                   false,
                   splits});
    }
    for (const std::int64_t tokens : {1, 3, 64, 257}) {
      t.push_back({"tokens_" + std::to_string(tokens),
                   tokens,
                   4,
                   {{flat, ragged, 65, 700}, {flat, range_flat, 33, 400}},
                   Sink::normal});
    }
    return t;
  }();
  return table;
}

class AttentionTable : public testing::TestWithParam<std::tuple<Backend, std::size_t>> {};

}  // namespace

TEST_P(AttentionTable, EqualsReference) {
  const auto& [backend, index] = GetParam();
  if (!present(backend)) GTEST_SKIP() << "no GPU";
  const AttentionCase& c = cases()[index];
  AttentionData data(c);
  const Expected expected = reference_of(data.call);
  try {
    run_attention(data.call, backend);
  } catch (const Error& error) {
    if (backend.kernel == Schedule::Kernel::sm90 &&
        std::string(error.what()).find("no Hopper kernel") != std::string::npos) {
      GTEST_SKIP() << error.what();
    }
    throw;
  }
  expect_close(data.call, expected, c.name);
  EXPECT_TRUE(data.out.padding_intact()) << "wrote between the rows of out";
  EXPECT_TRUE(data.lse.padding_intact()) << "wrote between the rows of lse";
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionTable,
                         testing::Combine(testing::ValuesIn(attention_backends()),
                                          testing::Range<std::size_t>(0, cases().size())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + cases()[std::get<1>(test.param)].name;
                         });

/// Optional outputs absent, no segments, no tokens, no heads.
class AttentionBackends : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!present(GetParam())) GTEST_SKIP() << "no GPU";
    if (GetParam().kernel == Schedule::Kernel::sm90) GTEST_SKIP() << "covered by automatic";
  }
};

TEST_P(AttentionBackends, OptionalOutputsMayBeAbsent) {
  AttentionData data({"", 3, 16, {{flat, dense, 40}}});
  const Expected expected = reference_of(data.call);
  data.call.lse.reset();
  data.call.max_logits.reset();
  run_attention(data.call, GetParam());
  expect_close(data.call, expected, "no lse");
}

TEST_P(AttentionBackends, NoTokensAndNoHeadsSucceed) {
  AttentionData no_tokens({"", 0, 16, {{flat, dense, 40}}});
  EXPECT_NO_THROW(run_attention(no_tokens.call, GetParam()));
  AttentionData no_heads({"", 2, 0, {{flat, dense, 40}}});
  EXPECT_NO_THROW(run_attention(no_heads.call, GetParam()));
}

TEST_P(AttentionBackends, EqualBitsFromRunToRun) {
  AttentionData data({"", 9, 16, {{fp8_ocp, ragged, 700, 1500}, {flat, range_flat, 333, 900}}, Sink::normal});
  run_attention(data.call, GetParam());
  std::vector<double> first;
  for (std::int64_t n = 0; n < data.out.size(); ++n) first.push_back(data.out.flat(n));
  run_attention(data.call, GetParam());
  for (std::int64_t n = 0; n < data.out.size(); ++n) ASSERT_EQ(first[static_cast<std::size_t>(n)], data.out.flat(n));
}

INSTANTIATE_TEST_SUITE_P(, AttentionBackends, testing::ValuesIn(attention_backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace raggedmla::test
