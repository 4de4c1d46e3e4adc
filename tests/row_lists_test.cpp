// Row lists on every backend against the definition: one line of a table is one case.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/row_list_calls.hpp"
#include "support/row_list_cases.hpp"

namespace raggedmla::test {

namespace {

using enum ListForm;
constexpr DataType i32 = DataType::i32, i64 = DataType::i64;

/// Runs a case by definition and on the backend, from the same data made twice.
template <class Data, class Case, class Call>
void compare(const Case& c, const Backend& backend, const Call& call) {
  if (!present(backend)) GTEST_SKIP() << "no GPU";
  const Data expected(c), result(c);
  by_definition(call(expected));
  run_lists(call(result), backend);
  expect_same(result.out, expected.out);
}
const auto whole_call = [](const auto& data) { return data.arguments; };

std::vector<BuildCase> build_cases() {
  std::vector<BuildCase> cases;
  for (const std::int64_t queries : {0, 1, 7, 256, 1025, 3000, 8192, 70000}) {
    for (const std::int64_t width : {0, 1, 3, 4, 5, 128, 512, 1024}) {
      if (queries * width > 4'000'000) continue;
      cases.push_back({std::to_string(queries) + "x" + std::to_string(width), queries, width});
    }
  }
  for (const std::int64_t shift : {1, 2, 3, 4, 5}) {
    cases.push_back({"starts_at_" + std::to_string(shift), 97, 513, BuildCase::full, i32, 516, 1, -1, shift});
    cases.push_back(
        {"rows_of_odd_length_at_" + std::to_string(shift), 33, 1031, BuildCase::wild, i32, 0, 1, 500, shift});
  }
  for (const std::int64_t queries : {1, 3, 4, 5, 31, 128, 129, 511, 512, 513, 9001}) {
    const BuildCase c{"packed_lengths_" + std::to_string(queries), queries, queries < 9000 ? 600 : 60};
    cases.push_back(c);
    cases.back().length_stride = 1;
  }
  cases.insert(cases.end(), {{"full", 300, 1024, BuildCase::full},
                             {"all_empty", 300, 64, BuildCase::none},
                             {"no_lengths", 77, 130, BuildCase::absent},
                             {"row_limit_zero", 12, 40, BuildCase::wild, i32, 0, 1, 0},
                             {"row_limit", 300, 700, BuildCase::wild, i32, 0, 1, 35000},
                             {"row_limit_beyond_i32", 30, 70, BuildCase::wild, i64, 0, 1, std::int64_t{1} << 35},
                             {"column_slice", 130, 100, BuildCase::wild, i32, 333, 2},
                             {"wide_types", 130, 600, BuildCase::wild, i64, 0, 1, -1, 0, i64},
                             {"wide_column_slice", 65, 50, BuildCase::wild, i64, 501, 3, 40000, 1},
                             {"stride_8192", 40, 33, BuildCase::wild, i32, 8192},
                             {"rows_262144", 262144, 5},
                             {"one_row_of_300000", 1, 300000, BuildCase::full, i32, 0, 1, -1, 3}});
  return cases;
}

std::vector<TranslateCase> translate_cases() {
  std::vector<TranslateCase> cases;
  for (const ListForm form : {dense, ragged}) {
    const std::string of = form == dense ? "dense_" : "ragged_";
    for (const std::int64_t queries : {0, 1, 31, 32, 33, 256, 1023, 1024, 1025, 5000}) {
      cases.push_back({of + std::to_string(queries), queries, queries > 2000 ? 64 : 200, form});
    }
    for (const std::int64_t width : {0, 1, 31, 64, 65, 511, 512, 513, 1024, 2100}) {
      cases.push_back({of + "width_" + std::to_string(width), 40, width, form, true});
    }
    // More pieces than a block has warps: of many rows, of one, and both.
    cases.insert(cases.end(), {{of + "700x513", 700, 513, form, true},
                               {of + "one_row_of_300000", 1, 300000, form},
                               {of + "three_rows_of_100000", 3, 100000, form, true},
                               {of + "300x9000", 300, 9000, form, true, true},
                               {of + "40000x7", 40000, 7, form, true}});
    cases.insert(cases.end(), {{of + "valid", 300, 64, form, false, true},
                               {of + "lengths_and_valid", 1500, 130, form, true, true},
                               {of + "wide", 130, 512, form, true, true, i64},
                               {of + "pages_of_two", 64, 300, form, false, false, i32, 2},
                               {of + "pages_of_37", 64, 300, form, false, false, i32, 37},
                               {of + "cache_of_2000_pages", 64, 300, form, false, false, i32, 64, 2000},
                               {of + "cache_of_no_pages", 64, 300, form, false, false, i32, 64, 0}});
  }
  return cases;
}

std::vector<RangedCase> ranged_cases() {
  std::vector<RangedCase> cases;
  for (const ListForm form : {dense, ragged, range}) {
    const std::string of = form == dense ? "dense_" : form == ragged ? "ragged_" : "range_";
    const auto add = [&](const char* name, RangedCase c) {
      c.name = of + name;
      c.form = form;
      cases.push_back(c);
    };
    add("one", {.name = "", .requests = 1, .most_queries = 1});
    add("no_requests", {.name = "", .requests = 0, .most_queries = 0});
    add("decodes", {.name = "", .requests = 300, .most_queries = 1});
    add("speculative", {.name = "", .requests = 64, .most_queries = 4, .valid = true});
    add("prefill", {.name = "", .requests = 9, .most_queries = 700});
    add("positions", {.name = "", .requests = 37, .most_queries = 8, .positioned = true, .valid = true});
    add("wide", {.name = "", .requests = 37, .most_queries = 8, .valid = true, .type = i64});
    add("wide_positions", {.name = "", .requests = 37, .most_queries = 8, .positioned = true, .type = i64});
    add("plain_positions", {.name = "", .requests = 20, .most_queries = 20, .table = false});
    add("plain_explicit_positions",
        {.name = "", .requests = 20, .most_queries = 20, .table = false, .positioned = true});
    add("narrow", {.name = "", .requests = 40, .most_queries = 20, .width = 7, .ratio = 4});
    add("ratio_4_width_1000",
        {.name = "", .requests = 40, .most_queries = 20, .width = 1000, .window = 333, .ratio = 4});
    add("window_1", {.name = "", .requests = 40, .most_queries = 20, .width = 3, .window = 1, .ratio = 1});
    add("window_0", {.name = "", .requests = 5, .most_queries = 20, .width = 3, .window = 0});
    add("many_queries", {.name = "", .requests = 3000, .most_queries = 40, .width = 5});
  }
  return cases;
}

std::vector<RangedCase> window_cases() {
  std::vector<RangedCase> cases = ranged_cases();
  for (const ListForm form : {dense, ragged, range}) {
    const std::string of = form == dense ? "dense_" : form == ragged ? "ragged_" : "range_";
    cases.push_back(
        {.name = of + "draft_block", .requests = 50, .most_queries = 6, .form = form, .width = 192, .causal = false});
    cases.push_back({.name = of + "draft_block_narrow",
                     .requests = 50,
                     .most_queries = 6,
                     .form = form,
                     .width = 64,
                     .causal = false});
  }
  return cases;
}

std::vector<CombineCase> combine_cases() {
  std::vector<CombineCase> cases;
  for (const ListForm form : {dense, ragged}) {
    const std::string of = form == dense ? "dense_" : "ragged_";
    cases.insert(cases.end(), {{of + "one", 1, 1, 512, form},
                               {of + "csa", 9, 300, 512, form},
                               {of + "wide", 9, 300, 512, form, 4, 128, i64},
                               {of + "no_topk", 20, 60, 0, form, 1},
                               {of + "hca", 20, 60, 100, form, 128},
                               {of + "no_window", 20, 60, 33, form, 4, 0},
                               {of + "no_requests", 0, 0, 33, form},
                               {of + "padding", 200, 2, 16, form, 4, 3}});
  }
  return cases;
}

std::vector<CopyCase> copy_cases() {
  return {{"nothing", 0, 0, 0, 0},
          {"no_queries_padded", 0, 9, 0, 10},
          {"exact", 10, 10, 1000, 1000},
          {"padded", 6, 8, 777, 5000},
          {"cut_at_capacity", 50, 60, 4000, 3333},
          {"disordered", 50, 60, 4000, 3333, true},
          {"disordered_wide", 50, 60, 4000, 9999, true, 1, i64},
          {"starts_at_1", 10, 10, 100001, 200000, false, 1},
          {"starts_at_2", 10, 10, 100001, 200000, false, 2},
          {"starts_at_3", 10, 10, 100001, 200000, false, 3},
          {"wide", 10, 10, 50001, 60000, false, 1, i64},
          {"large", 8192, 8192, 3000000, 4000000}};
}

template <class Case>
class Table : public testing::TestWithParam<std::tuple<Backend, Case>> {};

template <class Case>
auto everywhere(const std::vector<Case>& cases) {
  return testing::Combine(testing::ValuesIn(list_backends()), testing::ValuesIn(cases));
}
const auto case_name = [](const auto& instance) {
  return std::get<0>(instance.param).name + "_" + std::get<1>(instance.param).name;
};

}  // namespace

class BuildRaggedTable : public Table<BuildCase> {};
TEST_P(BuildRaggedTable, EqualsDefinition) {
  const auto& [backend, c] = GetParam();
  compare<BuildData>(c, backend, whole_call);
}
INSTANTIATE_TEST_SUITE_P(Cases, BuildRaggedTable, everywhere(build_cases()), case_name);

class TranslateTopkTable : public Table<TranslateCase> {};
TEST_P(TranslateTopkTable, EqualsDefinition) {
  const auto& [backend, c] = GetParam();
  compare<TranslateData>(c, backend, whole_call);
}
INSTANTIATE_TEST_SUITE_P(Cases, TranslateTopkTable, everywhere(translate_cases()), case_name);

class WindowRowsTable : public Table<RangedCase> {};
TEST_P(WindowRowsTable, EqualsDefinition) {
  const auto& [backend, c] = GetParam();
  compare<RangedData>(c, backend, [](const RangedData& data) { return data.window; });
}
INSTANTIATE_TEST_SUITE_P(Cases, WindowRowsTable, everywhere(window_cases()), case_name);

class CompressedRowsTable : public Table<RangedCase> {};
TEST_P(CompressedRowsTable, EqualsDefinition) {
  const auto& [backend, c] = GetParam();
  compare<RangedData>(c, backend, [](const RangedData& data) { return data.compressed; });
}
INSTANTIATE_TEST_SUITE_P(Cases, CompressedRowsTable, everywhere(ranged_cases()), case_name);

class CombineTable : public Table<CombineCase> {};
TEST_P(CombineTable, EqualsDefinition) {
  const auto& [backend, c] = GetParam();
  compare<CombineData>(c, backend, whole_call);
}
INSTANTIATE_TEST_SUITE_P(Cases, CombineTable, everywhere(combine_cases()), case_name);

class CopyToGraphBuffersTable : public Table<CopyCase> {};
TEST_P(CopyToGraphBuffersTable, EqualsDefinition) {
  const auto& [backend, c] = GetParam();
  compare<CopyData>(c, backend, whole_call);
}
INSTANTIATE_TEST_SUITE_P(Cases, CopyToGraphBuffersTable, everywhere(copy_cases()), case_name);

}  // namespace raggedmla::test
