// The C ABI: every operator gives the same bits as the C++ API, and every misuse gives a status and a message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/c_api_world.hpp"

namespace raggedmla::test {
namespace {

using ::testing::HasSubstr;

/// One operator through both APIs; the C side also asks for the scratch size and compares it.
struct OperatorCase {
  const char* name;
  std::function<void(World&)> cpp;
  std::function<raggedmla_status(World&)> c;
  std::function<raggedmla_status()> without_arguments;
};

template <class Arguments, class Size, class Run>
raggedmla_status with_scratch(const Arguments& args, Size size, Run run) {
  alignas(256) static unsigned char memory[1 << 20];
  raggedmla_workspace workspace = RAGGEDMLA_WORKSPACE_INIT;
  workspace.data = memory;
  workspace.bytes = sizeof memory;
  raggedmla_status status = raggedmla_initialize_workspace(&workspace, nullptr);
  if (status == RAGGEDMLA_OK) status = size(&args, &workspace.bytes);
  return status == RAGGEDMLA_OK ? run(&args, &workspace, nullptr) : status;
}

Workspace cpp_scratch() {
  alignas(256) static unsigned char memory[1 << 20];
  const Workspace workspace{memory, sizeof memory, {}};
  initialize_workspace(workspace);
  return workspace;
}

const std::vector<OperatorCase>& operators() {
  static const std::vector<OperatorCase> table{
      {"quantize_rows",
       [](World& w) {
         quantize_rows({w.bf16_rows, w.slots, w.cache(), ScaleFloor::quotient});
       },
       [](World& w) {
         const raggedmla_kv cache = w.c_cache();
         raggedmla_quantize_rows_args args = RAGGEDMLA_QUANTIZE_ROWS_INIT;
         args.rows = w.c(w.bf16_rows);
         args.slots = w.c(w.slots);
         args.cache = &cache;
         args.floor = RAGGEDMLA_SCALE_FLOOR_QUOTIENT;
         return raggedmla_quantize_rows(&args, nullptr);
       },
       [] { return raggedmla_quantize_rows(nullptr, nullptr); }},
      {"dequantize_rows",
       [](World& w) {
         dequantize_rows({w.cache(), w.slots, w.bf16_out});
       },
       [](World& w) {
         const raggedmla_kv cache = w.c_cache();
         raggedmla_dequantize_rows_args args = RAGGEDMLA_DEQUANTIZE_ROWS_INIT;
         args.source = &cache;
         args.slots = w.c(w.slots);
         args.out = w.c(w.bf16_out);
         return raggedmla_dequantize_rows(&args, nullptr);
       },
       [] { return raggedmla_dequantize_rows(nullptr, nullptr); }},
      {"gather_rows",
       [](World& w) {
         gather_rows({w.cache(), w.block_table, w.row_base, w.gathered, w.gather_out, 1});
       },
       [](World& w) {
         const raggedmla_kv cache = w.c_cache();
         raggedmla_gather_rows_args args = RAGGEDMLA_GATHER_ROWS_INIT;
         args.source = &cache;
         args.block_table = w.c(w.block_table);
         args.first = w.c(w.row_base);
         args.count = w.c(w.gathered);
         args.out = w.c(w.gather_out);
         args.out_offset = 1;
         return raggedmla_gather_rows(&args, nullptr);
       },
       [] { return raggedmla_gather_rows(nullptr, nullptr); }},
      {"build_ragged",
       [](World& w) {
         build_ragged({w.list_indices, w.lengths, w.ragged(), 9}, cpp_scratch());
       },
       [](World& w) {
         const raggedmla_list_output out = w.c_output(RAGGEDMLA_LIST_RAGGED);
         raggedmla_build_ragged_args args = RAGGEDMLA_BUILD_RAGGED_INIT;
         args.indices = w.c(w.list_indices);
         args.lengths = w.c(w.lengths);
         args.out = &out;
         args.row_limit = 9;
         return with_scratch(args, raggedmla_build_ragged_workspace_bytes, raggedmla_build_ragged);
       },
       [] { return raggedmla_build_ragged(nullptr, nullptr, nullptr); }},
      {"translate_topk",
       [](World& w) {
         translate_topk({w.topk, w.request_of_query, w.block_table, 4, 5, w.valid, w.lengths, w.dense()},
                        cpp_scratch());
       },
       [](World& w) {
         const raggedmla_list_output out = w.c_output(RAGGEDMLA_LIST_DENSE);
         raggedmla_translate_topk_args args = RAGGEDMLA_TRANSLATE_TOPK_INIT;
         args.topk = w.c(w.topk);
         args.request_of_query = w.c(w.request_of_query);
         args.block_table = w.c(w.block_table);
         args.rows_per_page = 4;
         args.pages = 5;
         args.valid = w.c(w.valid);
         args.lengths = w.c(w.lengths);
         args.out = &out;
         return with_scratch(args, raggedmla_translate_topk_workspace_bytes, raggedmla_translate_topk);
       },
       [] { return raggedmla_translate_topk(nullptr, nullptr, nullptr); }},
      {"window_rows",
       [](World& w) {
         window_rows({PositionedQueries{w.positions, w.request_of_query},
                      World::tokens,
                      5,
                      true,
                      {},
                      64,
                      w.valid,
                      0,
                      RangeOutput{w.first_out, w.count_out}},
                     cpp_scratch());
       },
       [](World& w) {
         raggedmla_query_layout queries = RAGGEDMLA_QUERY_LAYOUT_INIT;
         queries.kind = RAGGEDMLA_QUERIES_BY_POSITION;
         queries.positions = w.c(w.positions);
         queries.request_of_query = w.c(w.request_of_query);
         const raggedmla_list_output out = w.c_output(RAGGEDMLA_LIST_RANGE);
         raggedmla_window_rows_args args = RAGGEDMLA_WINDOW_ROWS_INIT;
         args.queries = &queries;
         args.query_count = World::tokens;
         args.window = 5;
         args.valid = w.c(w.valid);
         args.out = &out;
         return with_scratch(args, raggedmla_window_rows_workspace_bytes, raggedmla_window_rows);
       },
       [] { return raggedmla_window_rows(nullptr, nullptr, nullptr); }},
      {"compressed_rows",
       [](World& w) {
         compressed_rows({w.queries(), World::tokens, 2, w.block_table, 4, w.valid, World::width, w.dense()},
                         cpp_scratch());
       },
       [](World& w) {
         const raggedmla_query_layout queries = w.c_queries();
         const raggedmla_list_output out = w.c_output(RAGGEDMLA_LIST_DENSE);
         raggedmla_compressed_rows_args args = RAGGEDMLA_COMPRESSED_ROWS_INIT;
         args.queries = &queries;
         args.query_count = World::tokens;
         args.ratio = 2;
         args.block_table = w.c(w.block_table);
         args.rows_per_page = 4;
         args.valid = w.c(w.valid);
         args.width = World::width;
         args.out = &out;
         return with_scratch(args, raggedmla_compressed_rows_workspace_bytes, raggedmla_compressed_rows);
       },
       [] { return raggedmla_compressed_rows(nullptr, nullptr, nullptr); }},
      {"combine",
       [](World& w) {
         combine({w.topk, w.queries(), World::tokens, w.gathered, 20, 6, 4, 8, w.ragged()}, cpp_scratch());
       },
       [](World& w) {
         const raggedmla_query_layout queries = w.c_queries();
         const raggedmla_list_output out = w.c_output(RAGGEDMLA_LIST_RAGGED);
         raggedmla_combine_args args = RAGGEDMLA_COMBINE_INIT;
         args.topk = w.c(w.topk);
         args.queries = &queries;
         args.query_count = World::tokens;
         args.gathered = w.c(w.gathered);
         args.rows_per_request = 20;
         args.compressed_rows = 6;
         args.ratio = 4;
         args.window = 8;
         args.out = &out;
         return with_scratch(args, raggedmla_combine_workspace_bytes, raggedmla_combine);
       },
       [] { return raggedmla_combine(nullptr, nullptr, nullptr); }},
      {"copy_to_graph_buffers",
       [](World& w) {
         copy_to_graph_buffers(
             {{TensorView(w.list_indices.view().data, DataType::i64, {World::tokens * World::width}), w.indptr_in},
              w.graph_indices,
              w.graph_indptr});
       },
       [](World& w) {
         const std::int64_t size = World::tokens * World::width;
         const raggedmla_tensor source =
             raggedmla_packed(w.list_indices.view().data, RAGGEDMLA_I64, RAGGEDMLA_CPU, 0, 1, &size);
         raggedmla_copy_to_graph_buffers_args args = RAGGEDMLA_COPY_TO_GRAPH_BUFFERS_INIT;
         args.source_indices = &source;
         args.source_indptr = w.c(w.indptr_in);
         args.indices = w.c(w.graph_indices);
         args.indptr = w.c(w.graph_indptr);
         return raggedmla_copy_to_graph_buffers(&args, nullptr);
       },
       [] { return raggedmla_copy_to_graph_buffers(nullptr, nullptr); }},
      {"attention",
       [](World& w) {
         const auto segments = w.segments();
         attention(w.attention_call(segments), cpp_scratch());
       },
       [](World& w) {
         const World::CAttention call(w);
         return with_scratch(call.args, raggedmla_attention_workspace_bytes, raggedmla_attention);
       },
       [] { return raggedmla_attention(nullptr, nullptr, nullptr); }},
      {"merge_states",
       [](World& w) {
         merge_states({w.partial_out, w.partial_lse, w.sink, w.out, w.lse});
       },
       [](World& w) {
         raggedmla_merge_states_args args = RAGGEDMLA_MERGE_STATES_INIT;
         args.partial_out = w.c(w.partial_out);
         args.partial_lse = w.c(w.partial_lse);
         args.sink = w.c(w.sink);
         args.out = w.c(w.out);
         args.lse = w.c(w.lse);
         return raggedmla_merge_states(&args, nullptr);
       },
       [] { return raggedmla_merge_states(nullptr, nullptr); }},
  };
  return table;
}

class CApiOperator : public ::testing::TestWithParam<OperatorCase> {};

TEST_P(CApiOperator, GivesTheSameBitsAsTheCppApi) {
  World world;
  world.poison_outputs();
  const auto before = world.output_bytes();
  GetParam().cpp(world);
  const auto expected = world.output_bytes();
  world.poison_outputs();
  ASSERT_EQ(GetParam().c(world), RAGGEDMLA_OK) << raggedmla_last_error();
  EXPECT_EQ(world.output_bytes(), expected);
  // Quantising again the rows that the cache holds already changes nothing but the floor's effect on tiny groups.
  if (GetParam().name != std::string("quantize_rows")) {
    EXPECT_NE(expected, before) << "the case shows nothing";
  }
}

TEST_P(CApiOperator, RefusesNullArguments) {
  EXPECT_EQ(GetParam().without_arguments(), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_EQ(raggedmla_last_error(), std::string(GetParam().name) + ": args is NULL");
}

INSTANTIATE_TEST_SUITE_P(All, CApiOperator, ::testing::ValuesIn(operators()),
                         [](const auto& test) { return std::string(test.param.name); });

/// A way to get a call of attention wrong, and what the message must hold.
struct Misuse {
  const char* name;
  std::function<void(World::CAttention&)> spoil;
  const char* message;
  raggedmla_status status = RAGGEDMLA_INVALID_ARGUMENT;
};

/// A tensor view of a call, changed; lives until the next one is made.
raggedmla_tensor* changed(const raggedmla_tensor*& pointer) {
  static std::deque<raggedmla_tensor> copies;
  raggedmla_tensor* copy = &copies.emplace_back(*pointer);
  pointer = copy;
  return copy;
}

const std::vector<Misuse>& misuses() {
  using Call = World::CAttention;
  static const std::vector<Misuse> table{
      {"args_size_zero", [](Call& c) { c.args.struct_size = 0; }, "args has struct_size 0, expected"},
      {"args_size_small", [](Call& c) { c.args.struct_size -= 8; }, "args has struct_size"},
      {"args_size_garbage", [](Call& c) { c.args.struct_size = std::size_t{1} << 40; }, "args has struct_size"},
      {"tensor_size", [](Call& c) { changed(c.args.q)->struct_size = 3; }, "q has struct_size 3, expected"},
      {"segment_size", [](Call& c) { c.segments[0].struct_size = 1; }, "segments has struct_size 1"},
      {"kv_size", [](Call& c) { c.flat.struct_size = 1; }, "kv has struct_size 1"},
      {"rows_size", [](Call& c) { c.rows[3].struct_size = 1; }, "rows has struct_size 1"},
      {"epilogue_size", [](Call& c) { c.epilogue.struct_size = 1; }, "epilogue has struct_size 1"},
      {"schedule_size", [](Call& c) { c.schedule.struct_size = 1; }, "schedule has struct_size 1"},
      {"q_null", [](Call& c) { c.args.q = nullptr; }, "attention: q is NULL"},
      {"out_null", [](Call& c) { c.args.out = nullptr; }, "attention: out is NULL"},
      {"segments_null", [](Call& c) { c.args.segments = nullptr; }, "segments is NULL"},
      {"kv_null", [](Call& c) { c.segments[1].kv = nullptr; }, "kv is NULL"},
      {"rows_null", [](Call& c) { c.segments[2].rows = nullptr; }, "rows is NULL"},
      {"pages_null", [](Call& c) { c.paged.rows = nullptr; }, "kv is NULL"},
      {"indices_null", [](Call& c) { c.rows[0].indices = nullptr; }, "rows.indices is NULL"},
      {"indptr_null", [](Call& c) { c.rows[1].indptr = nullptr; }, "rows.indptr is NULL"},
      {"first_null", [](Call& c) { c.rows[2].first = nullptr; }, "rows.first is NULL"},
      {"cos_sin_null", [](Call& c) { c.epilogue.cos_sin = nullptr; }, "epilogue.cos_sin is NULL"},
      {"data_null", [](Call& c) { changed(c.args.q)->data = nullptr; }, "q"},
      {"no_segments", [](Call& c) { c.args.segment_count = 0; }, "segment_count is 0, expected 1 to 4"},
      {"five_segments", [](Call& c) { c.args.segment_count = 5; }, "segment_count is 5, expected 1 to 4"},
      {"dtype", [](Call& c) { changed(c.args.q)->dtype = 77; }, "q has value 77"},
      {"device_type", [](Call& c) { changed(c.args.q)->device_type = -1; }, "q has value -1"},
      {"rank", [](Call& c) { changed(c.args.q)->rank = 9; }, "q has rank 9, expected 0 to 4"},
      {"kv_kind", [](Call& c) { c.paged.kind = 5; }, "kv has kind 5"},
      {"reserved", [](Call& c) { c.paged.reserved = 1; }, "kv has reserved = 1, expected 0"},
      {"encoding", [](Call& c) { c.paged.encoding = 2; }, "kv has value 2"},
      {"rows_kind", [](Call& c) { c.rows[0].kind = 3; }, "rows has kind 3"},
      {"epilogue_kind", [](Call& c) { c.epilogue.kind = 4; }, "epilogue.kind has value 4"},
      {"kernel", [](Call& c) { c.schedule.kernel = 50; }, "kernel has value 50"},
      {"wrong_shape", [](Call& c) { changed(c.args.q)->shape[2] = 500; }, "attention: q has shape [4, 3, 500]"},
      {"wrong_type", [](Call& c) { changed(c.args.q)->dtype = RAGGEDMLA_I32; }, "attention: q"},
      {"missing_hip",
       [](Call& c) {
         for (const raggedmla_tensor** t : {&c.args.q, &c.args.sink, &c.args.out, &c.args.lse, &c.args.max_logits}) {
           changed(*t)->device_type = RAGGEDMLA_HIP;
         }
       },
       "attention"},
  };
  return table;
}

class CApiMisuse : public ::testing::TestWithParam<Misuse> {};

TEST_P(CApiMisuse, GivesAStatusAndWritesNothing) {
  World world;
  world.poison_outputs();
  const auto before = world.output_bytes();
  World::CAttention call(world);
  GetParam().spoil(call);
  EXPECT_EQ(raggedmla_attention(&call.args, nullptr, nullptr), GetParam().status);
  EXPECT_THAT(raggedmla_last_error(), HasSubstr(GetParam().message));
  std::size_t bytes = 12345;
  EXPECT_EQ(raggedmla_attention_workspace_bytes(&call.args, &bytes), GetParam().status);
  EXPECT_EQ(bytes, 12345u);
  EXPECT_EQ(world.output_bytes(), before);
}

INSTANTIATE_TEST_SUITE_P(Attention, CApiMisuse, ::testing::ValuesIn(misuses()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(CApi, ALargerStructureWithAZeroTailIsAccepted) {
  World world;
  World::CAttention call(world);
  struct Newer {
    raggedmla_attention_args args;
    std::int64_t field = 0;
  } newer{call.args};
  newer.args.struct_size = sizeof newer;
  alignas(256) unsigned char scratch[4096] = {};
  raggedmla_workspace workspace = RAGGEDMLA_WORKSPACE_INIT;
  workspace.data = scratch;
  workspace.bytes = sizeof scratch;
  EXPECT_EQ(raggedmla_attention(&newer.args, &workspace, nullptr), RAGGEDMLA_OK) << raggedmla_last_error();
  newer.field = 1;
  EXPECT_EQ(raggedmla_attention(&newer.args, &workspace, nullptr), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_THAT(raggedmla_last_error(), HasSubstr("does not know"));
}

TEST(CApi, OperatorsRefuseOutputsTheyCannotMake) {
  World world;
  const raggedmla_list_output range = world.c_output(RAGGEDMLA_LIST_RANGE);
  raggedmla_translate_topk_args translate = RAGGEDMLA_TRANSLATE_TOPK_INIT;
  translate.topk = world.c(world.topk);
  translate.request_of_query = world.c(world.request_of_query);
  translate.block_table = world.c(world.block_table);
  translate.out = &range;
  EXPECT_EQ(raggedmla_translate_topk(&translate, nullptr, nullptr), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_THAT(raggedmla_last_error(), HasSubstr("translate_topk: out.kind has value 2"));

  const raggedmla_list_output dense = world.c_output(RAGGEDMLA_LIST_DENSE);
  raggedmla_build_ragged_args build = RAGGEDMLA_BUILD_RAGGED_INIT;
  build.indices = world.c(world.topk);
  build.out = &dense;
  EXPECT_EQ(raggedmla_build_ragged(&build, nullptr, nullptr), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_THAT(raggedmla_last_error(), HasSubstr("build_ragged: out.kind has value 1"));
}

TEST(CApi, OperatorsRefuseKindsOfInputTheyDoNotTake) {
  World world;
  raggedmla_kv flat = RAGGEDMLA_KV_INIT;
  flat.kind = RAGGEDMLA_KV_DENSE;
  flat.rows = world.c(world.bf16_rows);
  raggedmla_quantize_rows_args quantize = RAGGEDMLA_QUANTIZE_ROWS_INIT;
  quantize.rows = world.c(world.bf16_rows);
  quantize.slots = world.c(world.slots);
  quantize.cache = &flat;
  EXPECT_EQ(raggedmla_quantize_rows(&quantize, nullptr), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_THAT(raggedmla_last_error(), HasSubstr("cache is dense, expected pages"));

  raggedmla_query_layout positions = RAGGEDMLA_QUERY_LAYOUT_INIT;
  positions.kind = RAGGEDMLA_QUERIES_BY_POSITION;
  positions.positions = world.c(world.positions);
  positions.request_of_query = world.c(world.request_of_query);
  raggedmla_combine_args combine = RAGGEDMLA_COMBINE_INIT;
  combine.queries = &positions;
  EXPECT_EQ(raggedmla_combine(&combine, nullptr, nullptr), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_THAT(raggedmla_last_error(), HasSubstr("expected by request"));
  positions.kind = 9;
  EXPECT_EQ(raggedmla_combine(&combine, nullptr, nullptr), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_THAT(raggedmla_last_error(), HasSubstr("queries has kind 9"));
}

TEST(CApi, DescribesTheBuildAndTheDevices) {
  EXPECT_STREQ(raggedmla_version(), build_info().version.c_str());
  raggedmla_build_info build = {};
  build.struct_size = sizeof build;
  ASSERT_EQ(raggedmla_get_build_info(&build), RAGGEDMLA_OK);
  EXPECT_STREQ(build.version, raggedmla_version());
  EXPECT_THAT(build.backends, HasSubstr("reference cpu"));
  EXPECT_THAT(build.cpu_instruction_sets, HasSubstr("portable"));
  ASSERT_NE(build.gpu_architectures, nullptr);

  std::size_t count = 0;
  ASSERT_EQ(raggedmla_get_devices(nullptr, 0, &count), RAGGEDMLA_OK);
  ASSERT_EQ(count, devices().size());
  std::vector<raggedmla_device_info> infos(count + 1);
  infos[0].struct_size = sizeof infos[0];
  ASSERT_EQ(raggedmla_get_devices(infos.data(), infos.size(), &count), RAGGEDMLA_OK);
  EXPECT_EQ(infos[0].device_type, RAGGEDMLA_CPU);
  EXPECT_EQ(infos[0].supported, 1);
  EXPECT_STRNE(infos[0].name, "");
  EXPECT_EQ(raggedmla_preload(RAGGEDMLA_CPU, 0), RAGGEDMLA_OK);

  EXPECT_EQ(raggedmla_get_build_info(nullptr), RAGGEDMLA_INVALID_ARGUMENT);
  build.struct_size = 4;
  EXPECT_EQ(raggedmla_get_build_info(&build), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_EQ(raggedmla_get_devices(nullptr, 1, &count), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_EQ(raggedmla_get_devices(nullptr, 0, nullptr), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_EQ(raggedmla_preload(44, 0), RAGGEDMLA_INVALID_ARGUMENT);
  EXPECT_EQ(raggedmla_initialize_workspace(nullptr, nullptr), RAGGEDMLA_INVALID_ARGUMENT);
}

TEST(CApi, AMissingBackendIsADeviceError) {
  // No build has both GPU backends.
  const bool hip = build_info().backends.back() == "hip";
  EXPECT_EQ(raggedmla_preload(hip ? RAGGEDMLA_CUDA : RAGGEDMLA_HIP, 0), RAGGEDMLA_DEVICE_ERROR);
  EXPECT_STRNE(raggedmla_last_error(), "");
}

}  // namespace
}  // namespace raggedmla::test
