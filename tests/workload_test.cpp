#include "io/workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "attention/flatten.hpp"
#include "base/bfloat16.hpp"
#include "io/comparison.hpp"
#include "io/generator.hpp"
#include "io/random.hpp"
#include "io/topk.hpp"
#include "raggedmla/raggedmla.hpp"

namespace raggedmla::io {
namespace {

using testing::HasSubstr;

/// Binds the set's call with results in `results` and runs it.
AttentionResult run(TensorSet& tensors, TensorSet& results, Schedule::Kernel kernel = Schedule::Kernel::cpu) {
  AttentionCall call = bind_attention(tensors);
  Attention& arguments = call.arguments;
  const std::int64_t queries = arguments.q.shape[0], heads = arguments.q.shape[1];
  arguments.out = results.add("out", DataType::f32, {queries, heads, 512});
  arguments.lse = results.add("lse", DataType::f32, {queries, heads});
  arguments.schedule.kernel = kernel;
  const std::size_t bytes = attention_workspace_bytes(arguments);
  const host::Memory scratch({}, bytes);
  if (bytes > 0) initialize_workspace({scratch.data(), bytes, {}});
  attention(arguments, {scratch.data(), bytes, {}});
  return {arguments.out, arguments.lse, std::nullopt};
}

bool same_bytes(const TensorView& a, const TensorView& b) {
  return packed_bytes(a) == packed_bytes(b) && std::memcmp(a.data, b.data, packed_bytes(a)) == 0;
}

/// The rows that every query selects, by content of the row: what two forms of a list must agree on.
std::int64_t selected_rows(TensorSet& tensors) {
  TensorSet results("results");
  AttentionCall call = bind_attention(tensors);
  call.arguments.out = results.add("out", DataType::bf16, {call.arguments.q.shape[0], call.arguments.q.shape[1], 512});
  const AttentionProblem problem = flatten_attention(call.arguments);
  std::int64_t rows = 0;
  for (int s = 0; s < problem.segment_count; ++s) {
    const auto& [store, list] = problem.segments[s];
    for (std::int64_t t = 0; t < problem.tokens; ++t) {
      const RowSpan span = list.span(t, store.rows);
      for (std::int64_t j = 0; j < span.length; ++j) rows += list.slot(span, j, store) >= 0;
    }
  }
  return rows;
}

// ---- generated workloads -------------------------------------------------------------------------------------------

struct Shape {
  const char* name;
  WorkloadShape shape;
};

/// By the visible-set formulas: min(position + 1, 128) window rows, and compressed rows as the layer selects them.
std::int64_t expected_rows(const WorkloadShape& shape) {
  std::int64_t rows = 0;
  for (std::int64_t position = shape.context - shape.tokens; position < shape.context; ++position) {
    rows += std::min<std::int64_t>(position + 1, 128);
    if (shape.layer == Layer::csa) rows += std::min((position + 1) / 4, model_shape(shape.model).top_k);
    if (shape.layer == Layer::hca) rows += (position + 1) / 128;
  }
  return rows * shape.batch;
}

class Generated : public testing::TestWithParam<Shape> {};

TEST_P(Generated, ListsAndRangesSelectTheVisibleRows) {
  WorkloadShape shape = GetParam().shape;
  TensorSet lists = make_workload(shape);
  EXPECT_EQ(selected_rows(lists), expected_rows(shape));
  shape.rows = RowForm::range;
  TensorSet ranges = make_workload(shape);
  EXPECT_EQ(selected_rows(ranges), expected_rows(shape));
  TensorSet list_results("lists"), range_results("ranges");
  Comparison comparison;
  comparison.add(run(ranges, range_results), run(lists, list_results));
  EXPECT_LE(comparison.row(), 1e-2) << "the two forms name the same rows";
  EXPECT_LE(comparison.lse().value(), 1e-3);
}

TEST_P(Generated, FileGivesTheSameBits) {
  TensorSet made = make_workload(GetParam().shape);
  const auto path = std::filesystem::path(testing::TempDir()) /
                    ("raggedmla_" + std::to_string(::getpid()) + "_" + GetParam().name + ".safetensors");
  made.write(path);
  TensorSet read = TensorSet::open(path);
  TensorSet made_results("made"), read_results("read");
  EXPECT_TRUE(same_bytes(run(made, made_results).out, run(read, read_results).out));
  EXPECT_EQ(read.metadata, made.metadata);
  std::filesystem::remove(path);
}

const Shape shapes[] = {
    {"swa_prefill",
     {.layer = Layer::swa,
      .phase = Phase::prefill,
      .batch = 2,
      .tokens = 9,
      .context = 140,
      .tensor_parallel = 16,
      .store = Store::flat}},
    {"csa_prefill",
     {.layer = Layer::csa,
      .phase = Phase::prefill,
      .batch = 2,
      .tokens = 7,
      .context = 2500,
      .tensor_parallel = 32,
      .overlap = 0.8,
      .store = Store::flat}},
    {"hca_prefill",
     {.model = Model::pro,
      .layer = Layer::hca,
      .phase = Phase::prefill,
      .batch = 1,
      .tokens = 130,
      .context = 700,
      .tensor_parallel = 64,
      .store = Store::flat}},
    {"whole_prompt",
     {.layer = Layer::csa,
      .phase = Phase::prefill,
      .batch = 3,
      .tokens = 20,
      .context = 20,
      .tensor_parallel = 64,
      .store = Store::flat}},
    {"paged_prefill",
     {.layer = Layer::csa,
      .phase = Phase::prefill,
      .batch = 1,
      .tokens = 6,
      .context = 300,
      .tensor_parallel = 16,
      .store = Store::pages}},
    {"swa_decode", {.layer = Layer::swa, .batch = 3, .context = 1000, .tensor_parallel = 8}},
    {"csa_decode",
     {.model = Model::pro,
      .layer = Layer::csa,
      .batch = 2,
      .tokens = 2,
      .context = 5000,
      .tensor_parallel = 16,
      .overlap = 0.5}},
    {"hca_decode", {.layer = Layer::hca, .batch = 3, .context = 3001, .tensor_parallel = 8}},
    {"fnuz_window",
     {.layer = Layer::swa, .batch = 1, .context = 64, .tensor_parallel = 8, .window_encoding = Fp8Encoding::fnuz}},
    {"first_token", {.layer = Layer::hca, .batch = 2, .context = 1, .tensor_parallel = 16}},
};
INSTANTIATE_TEST_SUITE_P(Shapes, Generated, testing::ValuesIn(shapes),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(Generator, NumbersAreTheSameOnEveryMachine) {
  RandomStream random(1, 2);
  EXPECT_EQ(random.bits(), 0x97e7220bfca47403u);
  EXPECT_EQ(random.bits(), 0x10dfa8e22e9c6910u);
  EXPECT_EQ(RandomStream(1, 3).bits() == RandomStream(1, 2).bits(), false);
}

TEST(Generator, NormalNumbersHaveUnitVariance) {
  RandomStream random(7, 1);
  double sum = 0, squares = 0;
  constexpr int count = 1 << 18;
  for (int i = 0; i < count; ++i) {
    const double value = random.normal();
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.01);
}

TEST(Generator, NeighbouringTopkListsShareTheAskedPart) {
  for (const double overlap : {0.0, 0.5, 0.8, 0.95, 1.0}) {
    TopkLists lists(4096, 512, overlap, RandomStream(3, 4));
    std::set<std::int64_t> before;
    for (int t = 0; t < 8; ++t) {
      const auto list = lists.next(4000 + t);
      const std::set<std::int64_t> now(list.begin(), list.end());
      ASSERT_EQ(now.size(), 512u) << "entries are distinct";
      EXPECT_LT(*now.rbegin(), 4000 + t);
      if (t > 0) {
        std::vector<std::int64_t> shared;
        std::set_intersection(now.begin(), now.end(), before.begin(), before.end(), std::back_inserter(shared));
        EXPECT_EQ(static_cast<std::int64_t>(shared.size()), std::llround(overlap * 512)) << overlap;
      }
      before = now;
    }
  }
}

TEST(Generator, FewVisibleEntriesAreAllListed) {
  TopkLists lists(600, 512, 0.0, RandomStream(3, 4));
  EXPECT_EQ(lists.next(0).size(), 0u);
  EXPECT_EQ(lists.next(511).size(), 511u);
  EXPECT_EQ(lists.next(512).back(), 511);
  const auto list = lists.next(520);  // too few others to replace all of them
  EXPECT_EQ(std::set<std::int64_t>(list.begin(), list.end()).size(), 512u);
}

struct BadShape {
  WorkloadShape shape;
  const char* message;
};

TEST(Generator, RefusesShapesThatDoNotExist) {
  const BadShape cases[] = {
      {{.tensor_parallel = 3}, "tensor-parallel degree is 3, expected a divisor of the model's 64 heads"},
      {{.tensor_parallel = 0}, "tensor-parallel degree is 0"},
      {{.context = 0}, "context is 0, expected 1 to 1048576"},
      {{.context = (1 << 20) + 1}, "context is 1048577"},
      {{.tokens = 9, .context = 8}, "tokens is 9, expected 1 to the context of 8"},
      {{.tokens = 0}, "tokens is 0"},
      {{.batch = 0}, "batch is 0"},
      {{.overlap = 1.5}, "overlap is 1.5"},
      {{.store = Store::flat}, "a flat store is for prefill"},
      {{.batch = 100'000, .context = 1 << 20}, "more rows than 32-bit lists can name"},
  };
  for (const BadShape& each : cases) {
    EXPECT_THAT([&] { make_workload(each.shape); }, testing::ThrowsMessage<Error>(HasSubstr(each.message)));
  }
}

// ---- files by hand -------------------------------------------------------------------------------------------------

/// Two queries of one head over four flat rows.
TensorSet small_set() {
  TensorSet set("small.safetensors");
  set.metadata = {{"op", "prefill"}, {"scale", "0.5"}};
  const auto add = [&](const char* name, DataType type, const std::vector<std::int64_t>& shape) {
    const TensorView view = set.add(name, type, shape);
    std::memset(view.data, 0, packed_bytes(view));
    return view;
  };
  auto* q = static_cast<std::uint16_t*>(add("q", DataType::bf16, {2, 1, 512}).data);
  auto* kv = static_cast<std::uint16_t*>(add("kv", DataType::bf16, {4, 512}).data);
  q[0] = q[512] = bf16_from_float(1);
  for (int row = 0; row < 4; ++row) kv[row * 512] = bf16_from_float(static_cast<float>(row));
  return set;
}

template <class Value>
void add_values(TensorSet& set, const char* name, DataType type, const std::vector<std::int64_t>& shape,
                const std::vector<Value>& values) {
  std::memcpy(set.add(name, type, shape).data, values.data(), values.size() * sizeof(Value));
}

/// Query 0 reads row 1, query 1 rows 2 and 3: logits 0.5, and 1 and 1.5.
void expect_small_result(TensorSet& set) {
  TensorSet results("results");
  const AttentionResult result = run(set, results, Schedule::Kernel::reference);
  const auto* lse = static_cast<const float*>(result.lse->data);
  EXPECT_FLOAT_EQ(lse[0], 0.5f);
  EXPECT_FLOAT_EQ(lse[1], std::log(std::exp(1.0f) + std::exp(1.5f)));
}

TEST(Workload, EveryKindOfSelection) {
  TensorSet ragged = small_set();
  add_values<std::int32_t>(ragged, "indices", DataType::i32, {5}, {1, 2, 3, -1, 99});
  add_values<std::int64_t>(ragged, "indptr", DataType::i64, {3}, {0, 1, 3});
  expect_small_result(ragged);

  TensorSet dense = small_set();
  add_values<std::int32_t>(dense, "main_indices", DataType::i32, {2, 2}, {1, 77, 2, 3});
  add_values<std::int32_t>(dense, "main_lengths", DataType::i32, {2}, {1, 2});
  expect_small_result(dense);

  TensorSet range = small_set();
  add_values<std::int32_t>(range, "main_first", DataType::i32, {2}, {0, 1});
  add_values<std::int32_t>(range, "main_count", DataType::i32, {2}, {1, 2});
  add_values<std::int32_t>(range, "main_query_start", DataType::i32, {2}, {0, 2});
  add_values<std::int32_t>(range, "main_row_base", DataType::i32, {1}, {1});
  expect_small_result(range);

  TensorSet ring = small_set();
  ring.metadata["main_ring_rows"] = "4";
  add_values<std::int32_t>(ring, "main_first", DataType::i32, {2}, {5, 6});
  add_values<std::int32_t>(ring, "main_count", DataType::i32, {2}, {1, 2});
  add_values<std::int32_t>(ring, "main_query_start", DataType::i32, {2}, {0, 2});
  add_values<std::int32_t>(ring, "main_row_base", DataType::i32, {1}, {0});
  expect_small_result(ring);

  TensorSet two = small_set();  // two segments over the same rows
  add_values<std::int32_t>(two, "main_indices", DataType::i32, {2, 1}, {1, 2});
  add_values<std::int32_t>(two, "extra_indices", DataType::i32, {2, 1}, {-1, 3});
  expect_small_result(two);
}

TEST(Workload, EncodingAndEpilogueAreRead) {
  TensorSet set = small_set();
  set.metadata["epilogue"] = "inverse_rope";
  set.metadata["main_encoding"] = "fnuz";
  set.metadata["main_rows_per_page"] = "2";
  set.add("main_pages", DataType::u8, {1, 1168});
  add_values<std::int32_t>(set, "main_indices", DataType::i32, {2, 1}, {0, 1});
  add_values<std::int32_t>(set, "positions", DataType::i32, {2}, {0, 1});
  set.add("cos_sin", DataType::f32, {2, 64});
  const AttentionCall call = bind_attention(set);
  EXPECT_EQ(call.arguments.epilogue.kind, Epilogue::Kind::inverse_rope);
  EXPECT_EQ(call.arguments.scale, 0.5f);
  const auto& pages = std::get<PagedKv>(call.segments[0].kv);
  EXPECT_EQ(pages.encoding, Fp8Encoding::fnuz);
  EXPECT_EQ(pages.rows_per_page, 2);
  EXPECT_EQ(name_tensors(call, "attention: segments[0].kv.pages and segments[0].rows.lengths, epilogue.positions"),
            "attention: main_pages and main_lengths, positions");
}

TEST(Workload, ErrorsNameTheFileAndTheTensor) {
  const auto message = [](auto change) -> std::string {
    TensorSet set = small_set();
    change(set);
    try {
      bind_attention(set);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto with_list = [](TensorSet& set, const char* name) {
    add_values<std::int32_t>(set, name, DataType::i32, {2, 1}, {0, 1});
  };
  EXPECT_THAT(message([](TensorSet&) {}), HasSubstr("small.safetensors: selects no rows, expected 'indices'"));
  EXPECT_THAT(message([](TensorSet& set) { set.metadata.erase("op"); }), HasSubstr("metadata op is '', expected"));
  EXPECT_THAT(message([](TensorSet& set) { set.metadata["op"] = "train"; }), HasSubstr("metadata op is 'train'"));
  EXPECT_THAT(message([&](TensorSet& set) {
                with_list(set, "indices");
                set.metadata["scale"] = "half";
              }),
              HasSubstr("metadata scale is 'half', expected a number"));
  EXPECT_THAT(message([&](TensorSet& set) {
                with_list(set, "indices");
                set.metadata["epilogue"] = "gelu";
              }),
              HasSubstr("metadata epilogue is 'gelu', expected none or inverse_rope"));
  EXPECT_THAT(message([&](TensorSet& set) {
                with_list(set, "indices");
                set.metadata["epilogue"] = "inverse_rope";
              }),
              HasSubstr("has no tensor 'cos_sin'"));
  EXPECT_THAT(message([&](TensorSet& set) { with_list(set, "main_first"); }), HasSubstr("has no tensor 'main_count'"));
  EXPECT_THAT(message([&](TensorSet& set) {
                with_list(set, "main_first");
                with_list(set, "main_indices");
              }),
              HasSubstr("holds both 'main_indices' and 'main_first'"));
  EXPECT_THAT(message([&](TensorSet& set) {
                with_list(set, "main_indices");
                set.add("main_pages", DataType::u8, {1, 584});
              }),
              HasSubstr("has no metadata main_rows_per_page"));
  EXPECT_THAT(message([&](TensorSet& set) {
                with_list(set, "main_indices");
                set.add("main_pages", DataType::u8, {1, 584});
                set.metadata["main_rows_per_page"] = "0";
              }),
              HasSubstr("metadata main_rows_per_page is 0"));
  EXPECT_THAT(message([&](TensorSet& set) {
                with_list(set, "main_indices");
                set.add("main_pages", DataType::u8, {1, 584});
                set.metadata["main_rows_per_page"] = "1";
                set.metadata["main_encoding"] = "e5m2";
              }),
              HasSubstr("metadata main_encoding is 'e5m2', expected ocp or fnuz"));
  EXPECT_THAT(message([&](TensorSet& set) {
                with_list(set, "main_indices");
                set.add("main_pages", DataType::u8, {1, 584});
                set.add("main_kv", DataType::bf16, {1, 512});
              }),
              HasSubstr("holds both 'main_kv' and 'main_pages'"));
}

TEST(Workload, OneQueryOfACallIsThatQuery) {
  for (const RowForm form : {RowForm::list, RowForm::range}) {
    TensorSet set = make_workload(
        {.layer = Layer::hca, .batch = 2, .tokens = 3, .context = 400, .tensor_parallel = 32, .rows = form});
    TensorSet results("results");
    AttentionCall call = bind_attention(set);
    call.arguments.out = results.add("out", DataType::f32, {6, 2, 512});
    call.arguments.schedule.kernel = Schedule::Kernel::reference;
    attention(call.arguments);
    for (std::int64_t t = 0; t < 6; ++t) {
      TensorSet storage("storage");
      AttentionCall part = slice_query(call, t, storage);
      const TensorView expected = part.arguments.out;
      part.arguments.out = storage.add("out", DataType::f32, {1, 2, 512});
      attention(part.arguments);
      EXPECT_EQ(std::memcmp(part.arguments.out.data, expected.data, 2 * 512 * sizeof(float)), 0) << t;
    }
  }
}

TEST(Workload, TensorsThatAreNotAlignedInTheFileAreCopied) {
  const auto path = std::filesystem::path(testing::TempDir()) / ("raggedmla_" + std::to_string(::getpid()) + "_odd");
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  const float values[] = {1.5f, -2.5f};
  bytes += header + "x" + std::string(reinterpret_cast<const char*>(values), sizeof values);
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  std::fclose(file);
  TensorSet set = TensorSet::open(path);
  const TensorView view = set.get("b");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % 16, 0u);
  EXPECT_EQ(static_cast<const float*>(view.data)[1], -2.5f);
  EXPECT_EQ(set.find("c"), std::nullopt) << "absent";
  EXPECT_THAT([&] { set.get("c"); }, testing::ThrowsMessage<Error>(HasSubstr("has no tensor 'c' (it holds: a, b)")));
  std::filesystem::remove(path);
}

// ---- comparison ----------------------------------------------------------------------------------------------------

class Compared : public testing::Test {
 protected:
  Compared() {
    std::fill(expected_.begin(), expected_.end(), 1.0f);
    actual_ = expected_;
  }
  Comparison compare() {
    Comparison comparison;
    comparison.add({TensorView(actual_.data(), DataType::f32, {2, 1, 4}),
                    TensorView(&actual_lse_, DataType::f32, {1, 1}), std::nullopt},
                   {TensorView(expected_.data(), DataType::f32, {2, 1, 4}),
                    TensorView(&expected_lse_, DataType::f32, {1, 1}), std::nullopt});
    return comparison;
  }
  std::array<float, 8> expected_{}, actual_{};
  float expected_lse_ = 0, actual_lse_ = 0;
};

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TEST_F(Compared, RelativeErrorsOfAllAndOfTheWorstRow) {
  actual_[5] = 1.02f;
  const Comparison comparison = compare();
  EXPECT_NEAR(comparison.out(), 0.02 / std::sqrt(8.0), 1e-6);
  EXPECT_NEAR(comparison.row(), 0.01, 1e-6);
  EXPECT_EQ(comparison.worst_token(), 1);
  EXPECT_FALSE(comparison.max_logits());
  EXPECT_FALSE(comparison.within({}));
}

TEST_F(Compared, ZeroRowsMustBeZero) {
  std::fill_n(expected_.begin(), 4, 0.0f);
  std::fill_n(actual_.begin(), 4, 0.0f);
  EXPECT_TRUE(compare().within({}));
  actual_[0] = 1e-20f;
  EXPECT_EQ(compare().row(), infinity);
}

TEST_F(Compared, WhatIsNotFiniteMustAgree) {
  expected_[0] = actual_[0] = nan;
  expected_[1] = actual_[1] = -infinity;
  EXPECT_TRUE(compare().within({}));
  actual_[0] = 1;
  EXPECT_FALSE(compare().within({}));
  actual_[0] = nan;
  actual_[2] = nan;
  EXPECT_FALSE(compare().within({}));
}

TEST_F(Compared, BothInfinitiesOfAnExpectedLseMeanAnEmptyRow) {
  actual_lse_ = -infinity;
  expected_lse_ = infinity;
  EXPECT_TRUE(compare().within({}));
  expected_lse_ = -infinity;
  EXPECT_TRUE(compare().within({}));
  expected_lse_ = 1;
  EXPECT_FALSE(compare().within({}));
  actual_lse_ = 1.002f;
  EXPECT_NEAR(compare().lse().value(), 0.002, 1e-6);
}

}  // namespace
}  // namespace raggedmla::io
