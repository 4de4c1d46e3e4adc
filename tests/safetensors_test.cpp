#include "io/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "raggedmla/error.hpp"

namespace raggedmla::io {
namespace {

using testing::HasSubstr;

/// A file's bytes from its header and the number of data bytes.
std::string file_bytes(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + header + std::string(data_bytes, '\x5A');
}

std::string error_of(const std::string& bytes, const std::string& use = "") {
  try {
    const SafetensorsFile file(std::as_bytes(std::span(bytes)), "case");
    if (!use.empty()) file.view(use);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::filesystem::path temporary(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / ("raggedmla_" + std::to_string(::getpid()) + "_" + name);
}

TEST(Safetensors, WritesWhatItReads) {
  std::vector<float> values(6);
  std::iota(values.begin(), values.end(), 1.0f);
  std::int64_t wide[] = {-1, std::int64_t{1} << 40};
  std::uint8_t byte = 7;
  const std::string path = temporary("round_trip.safetensors");
  const NamedTensor tensors[] = {{"byte", TensorView(&byte, DataType::u8, {1})},
                                 {"values", TensorView(values.data(), DataType::f32, {2, 3})},
                                 {"nothing", TensorView(nullptr, DataType::bf16, {0, 512})},
                                 {"scalar", TensorView(values.data(), DataType::f32, {})},
                                 {"wide", TensorView(wide, DataType::i64, {2})}};
  write_safetensors(path, tensors, {{"op", "prefill \"quoted\" \u00e9"}, {"scale", "0.5"}});

  const SafetensorsFile file(path);
  EXPECT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.metadata().at("op"), "prefill \"quoted\" \u00e9");
  const TensorView view = file.view("values");
  EXPECT_EQ(view.dtype, DataType::f32);
  ASSERT_EQ(view.rank, 2);
  EXPECT_EQ(view.shape[0], 2);
  EXPECT_EQ(view.shape[1], 3);
  EXPECT_EQ(view.stride[0], 3);
  EXPECT_EQ(std::memcmp(view.data, values.data(), 24), 0);
  EXPECT_EQ(static_cast<const std::int64_t*>(file.view("wide").data)[1], std::int64_t{1} << 40);
  EXPECT_EQ(file.view("scalar").rank, 0);
  EXPECT_EQ(file.view("nothing").size(), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.view("wide").data) % 16, 0u) << "16-byte tensors stand aligned";
  float copied[6] = {};
  file.copy("values", copied);
  EXPECT_EQ(copied[5], 6.0f);
  EXPECT_EQ(static_cast<const float*>(file.view("values").data)[5], 6.0f) << "a copy leaves the view readable";
  std::filesystem::remove(path);
}

TEST(Safetensors, SystemErrorsNameTheFile) {
  EXPECT_THAT([] { SafetensorsFile("/nonexistent/q.safetensors"); },
              testing::ThrowsMessage<Error>(HasSubstr("/nonexistent/q.safetensors: cannot be opened: No such file")));
  EXPECT_THAT([] { SafetensorsFile("/tmp"); }, testing::ThrowsMessage<Error>(HasSubstr("/tmp: is not a regular file")));
  EXPECT_THAT([] { write_safetensors("/nonexistent/q.safetensors", {}, {}); },
              testing::ThrowsMessage<Error>(HasSubstr("/nonexistent/q.safetensors: cannot be written")));
  const std::string empty = temporary("empty.safetensors");
  std::ofstream(empty).close();
  EXPECT_THAT([&] { SafetensorsFile file(empty); }, testing::ThrowsMessage<Error>(HasSubstr("has 0 bytes")));
  std::filesystem::remove(empty);
}

struct BadFile {
  const char* name;
  std::string bytes;
  const char* message;  // part of the error
  const char* use = "";
};

class BadSafetensors : public testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensors, IsRefusedWithAMessage) {
  EXPECT_THAT(error_of(GetParam().bytes, GetParam().use), HasSubstr(GetParam().message));
}

std::string length_only(std::uint64_t length, const std::string& rest = "") {
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + rest;
}

std::string one_tensor(const std::string& fields) { return "{\"q\":{" + fields + "}}"; }

std::string nested(std::size_t depth) { return one_tensor("\"shape\":" + std::string(depth, '[')); }

const BadFile bad_files[] = {
    {"shorter_than_a_length", "abc", "has 3 bytes, expected a safetensors file"},
    {"huge_header", length_only(max_header_bytes + 1), "header length is 100000001, expected at most 100000000"},
    {"largest_length", length_only(~std::uint64_t{0}), "expected at most"},
    {"header_beyond_the_file", length_only(100, "{}"), "only 2 bytes follow (the file is cut off)"},
    {"empty_header", file_bytes("", 0), "not valid JSON"},
    {"not_json", file_bytes("hello", 0), "not valid JSON"},
    {"cut_json", file_bytes("{\"q\":{", 0), "not valid JSON"},
    {"two_documents", file_bytes("{}{}", 0), "not valid JSON"},
    {"bad_utf8", file_bytes("{\"\xff\":{}}", 0), "not valid JSON"},
    {"array_header", file_bytes("[]", 0), "the header is an array, expected an object"},
    {"number_header", file_bytes("1", 0), "the header is a number, expected an object"},
    {"tensor_is_null", file_bytes("{\"q\":null}", 0), "tensor 'q' is described by null, expected an object"},
    {"metadata_not_text", file_bytes("{\"__metadata__\":{\"scale\":1}}", 0), "__metadata__ holds a number"},
    {"metadata_array", file_bytes("{\"__metadata__\":[]}", 0), "__metadata__ holds an array"},
    {"metadata_twice", file_bytes("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "stands twice"},
    {"metadata_key_twice", file_bytes("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0), "holds the key 'a' twice"},
    {"no_dtype", file_bytes(one_tensor(R"("shape":[1],"data_offsets":[0,4])"), 4), "tensor 'q' has no dtype"},
    {"no_shape", file_bytes(one_tensor(R"("dtype":"F32","data_offsets":[0,4])"), 4), "tensor 'q' has no shape"},
    {"no_offsets", file_bytes(one_tensor(R"("dtype":"F32","shape":[1])"), 4), "tensor 'q' has no data_offsets"},
    {"unknown_field", file_bytes(one_tensor(R"("stride":[1])"), 0), "tensor 'q' has the field 'stride'"},
    {"field_twice", file_bytes(one_tensor(R"("dtype":"F32","dtype":"U8")"), 0), "tensor 'q' has dtype twice"},
    {"dtype_number", file_bytes(one_tensor(R"("dtype":3)"), 0), "tensor 'q' has a number for dtype"},
    {"shape_text", file_bytes(one_tensor(R"("shape":"1")"), 0), "tensor 'q' has a string in shape"},
    {"shape_negative", file_bytes(one_tensor(R"("shape":[-1])"), 0), "has the number -1 in shape, expected"},
    {"shape_fraction", file_bytes(one_tensor(R"("shape":[1.5])"), 0), "has the number 1.5 in shape"},
    {"shape_beyond_64_bits", file_bytes(one_tensor(R"("shape":[99999999999999999999])"), 0), "in shape"},
    {"nested_arrays", file_bytes(nested(100'000), 0), "tensor 'q' has an array in shape"},
    {"nested_objects", file_bytes(one_tensor(R"("shape":[{}])"), 0), "tensor 'q' has an object in shape"},
    {"many_dimensions",
     file_bytes(one_tensor("\"shape\":[" + std::string("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,") +
                           "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                           "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"),
                0),
     "more than 64 numbers in shape"},
    {"three_offsets", file_bytes(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])"), 1),
     "tensor 'q' has 3 data_offsets"},
    {"descending_offsets", file_bytes(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), 1),
     "tensor 'q' lies at bytes [1, 0)"},
    {"offsets_beyond_the_file", file_bytes(one_tensor(R"("dtype":"U8","shape":[9],"data_offsets":[0,9])"), 8),
     "within the file's 8 data bytes"},
    {"size_disagrees", file_bytes(one_tensor(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,8])"), 8),
     "tensor 'q' has 8 bytes, expected 24 for F32 [2, 3]"},
    {"product_overflows",
     file_bytes(one_tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0),
     "tensor 'q' has shape [4294967296, 4294967296], more elements than can be addressed"},
    {"product_overflows_beside_zero",
     file_bytes(one_tensor(R"("dtype":"U8","shape":[0,9223372036854775807,4],"data_offsets":[0,0])"), 0),
     "more elements than can be addressed"},
    {"duplicate_name",
     file_bytes(
         R"({"q":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"q":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
         1),
     "tensor 'q' stands twice"},
    {"overlap",
     file_bytes(
         R"({"q":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"r":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
         3),
     "tensor 'r' starts at byte 1 of the data, expected 2 (it overlaps the one before)"},
    {"gap",
     file_bytes(
         R"({"q":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"r":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
         3),
     "tensor 'r' starts at byte 2 of the data, expected 1 (a gap lies before it)"},
    {"trailing_bytes", file_bytes(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])"), 5),
     "the tensors end at byte 1 of the data, expected 5"},
    {"data_without_tensors", file_bytes("{}", 5), "the tensors end at byte 0 of the data, expected 5"},
    {"type_used", file_bytes(one_tensor(R"("dtype":"F16","shape":[2],"data_offsets":[0,4])"), 4),
     "case: tensor 'q' has dtype F16, expected F32, BF16, U8, I32, I64 or BOOL", "q"},
    {"five_dimensions_used", file_bytes(one_tensor(R"("dtype":"U8","shape":[1,1,1,1,1],"data_offsets":[0,1])"), 1),
     "tensor 'q' has shape [1, 1, 1, 1, 1], expected at most 4 dimensions", "q"},
    {"absent_tensor", file_bytes(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])"), 1),
     "case: has no tensor 'kv' (it holds: q)", "kv"},
};

INSTANTIATE_TEST_SUITE_P(Files, BadSafetensors, testing::ValuesIn(bad_files),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(error_of(file_bytes("{}", 0)), "");
  EXPECT_EQ(error_of(file_bytes("{}      ", 0)), "") << "headers are padded with spaces";
  EXPECT_EQ(error_of(file_bytes("{\"__metadata__\":{\"dtype\":\"text\"}}", 0)), "");
  EXPECT_EQ(error_of(file_bytes(one_tensor(R"("dtype":"F16","shape":[2],"data_offsets":[0,4])"), 4)), "")
      << "a type that nobody asks for";
  EXPECT_EQ(error_of(file_bytes(one_tensor(R"("data_offsets":[0,4],"shape":[],"dtype":"F32")"), 4), "q"), "");
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = file_bytes(one_tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"), 16);
  ASSERT_EQ(error_of(whole), "");
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) EXPECT_NE(error_of(whole.substr(0, bytes)), "") << bytes;
}

}  // namespace
}  // namespace raggedmla::io
