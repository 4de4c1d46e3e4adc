// The operators of raggedmla.h: read the arguments, call the C++ operator, turn exceptions into a status.
#include "c_api/arguments.hpp"
#include "c_api/status.hpp"

namespace raggedmla::c_api {
namespace {

template <class Arguments, class Operator>
raggedmla_status run(const char* name, const Arguments* args, void* stream, Operator&& call) noexcept {
  return guarded([&] { call(arguments(Reader(name), args), Stream{stream}); });
}

template <class Arguments, class Operator>
raggedmla_status run(const char* name, const Arguments* args, const raggedmla_workspace* workspace, void* stream,
                     Operator&& call) noexcept {
  return guarded([&] {
    const Reader read(name);
    call(arguments(read, args), read.workspace(workspace), Stream{stream});
  });
}

template <class Arguments, class Operator>
raggedmla_status size(const char* name, const Arguments* args, std::size_t* bytes, Operator&& call) noexcept {
  return guarded([&] {
    const Reader read(name);
    if (bytes == nullptr) read.fail("bytes", "is NULL");
    *bytes = call(arguments(read, args));
  });
}

}  // namespace
}  // namespace raggedmla::c_api

using namespace raggedmla;

raggedmla_status raggedmla_quantize_rows(const raggedmla_quantize_rows_args* args, void* stream) {
  return c_api::run("quantize_rows", args, stream, quantize_rows);
}
raggedmla_status raggedmla_dequantize_rows(const raggedmla_dequantize_rows_args* args, void* stream) {
  return c_api::run("dequantize_rows", args, stream, dequantize_rows);
}
raggedmla_status raggedmla_gather_rows(const raggedmla_gather_rows_args* args, void* stream) {
  return c_api::run("gather_rows", args, stream, gather_rows);
}

raggedmla_status raggedmla_build_ragged(const raggedmla_build_ragged_args* args, const raggedmla_workspace* workspace,
                                        void* stream) {
  return c_api::run("build_ragged", args, workspace, stream, build_ragged);
}
raggedmla_status raggedmla_build_ragged_workspace_bytes(const raggedmla_build_ragged_args* args, size_t* bytes) {
  return c_api::size("build_ragged", args, bytes, build_ragged_workspace_bytes);
}

raggedmla_status raggedmla_translate_topk(const raggedmla_translate_topk_args* args,
                                          const raggedmla_workspace* workspace, void* stream) {
  return c_api::run("translate_topk", args, workspace, stream, translate_topk);
}
raggedmla_status raggedmla_translate_topk_workspace_bytes(const raggedmla_translate_topk_args* args, size_t* bytes) {
  return c_api::size("translate_topk", args, bytes, translate_topk_workspace_bytes);
}

raggedmla_status raggedmla_window_rows(const raggedmla_window_rows_args* args, const raggedmla_workspace* workspace,
                                       void* stream) {
  return c_api::run("window_rows", args, workspace, stream, window_rows);
}
raggedmla_status raggedmla_window_rows_workspace_bytes(const raggedmla_window_rows_args* args, size_t* bytes) {
  return c_api::size("window_rows", args, bytes, window_rows_workspace_bytes);
}

raggedmla_status raggedmla_compressed_rows(const raggedmla_compressed_rows_args* args,
                                           const raggedmla_workspace* workspace, void* stream) {
  return c_api::run("compressed_rows", args, workspace, stream, compressed_rows);
}
raggedmla_status raggedmla_compressed_rows_workspace_bytes(const raggedmla_compressed_rows_args* args, size_t* bytes) {
  return c_api::size("compressed_rows", args, bytes, compressed_rows_workspace_bytes);
}

raggedmla_status raggedmla_combine(const raggedmla_combine_args* args, const raggedmla_workspace* workspace,
                                   void* stream) {
  return c_api::run("combine", args, workspace, stream, combine);
}
raggedmla_status raggedmla_combine_workspace_bytes(const raggedmla_combine_args* args, size_t* bytes) {
  return c_api::size("combine", args, bytes, combine_workspace_bytes);
}

raggedmla_status raggedmla_copy_to_graph_buffers(const raggedmla_copy_to_graph_buffers_args* args, void* stream) {
  return c_api::run("copy_to_graph_buffers", args, stream, copy_to_graph_buffers);
}

raggedmla_status raggedmla_attention(const raggedmla_attention_args* args, const raggedmla_workspace* workspace,
                                     void* stream) {
  return c_api::run("attention", args, workspace, stream, attention);
}
raggedmla_status raggedmla_attention_workspace_bytes(const raggedmla_attention_args* args, size_t* bytes) {
  return c_api::size("attention", args, bytes, attention_workspace_bytes);
}

raggedmla_status raggedmla_merge_states(const raggedmla_merge_states_args* args, void* stream) {
  return c_api::run("merge_states", args, stream, merge_states);
}

raggedmla_status raggedmla_initialize_workspace(const raggedmla_workspace* workspace, void* stream) {
  return c_api::guarded([&] {
    const c_api::Reader read("initialize_workspace");
    if (workspace == nullptr) read.fail("workspace", "is NULL");
    initialize_workspace(read.workspace(workspace), Stream{stream});
  });
}
