// Row-list operators on any backend: a whole argument struct is mirrored on the device, run there and brought back.
#pragma once

#include "row_lists/backends.hpp"
#include "support/mirror.hpp"

namespace raggedmla::test {

inline BuildRagged on(Mirror& mirror, BuildRagged a) {
  return {mirror.in(a.indices), mirror.in(a.lengths), std::get<RaggedOutput>(mirror.out(ListOutput(a.out))),
          a.row_limit};
}

inline TranslateTopk on(Mirror& mirror, TranslateTopk a) {
  a.topk = mirror.in(a.topk);
  a.request_of_query = mirror.in(a.request_of_query);
  a.block_table = mirror.in(a.block_table);
  a.valid = mirror.in(a.valid);
  a.lengths = mirror.in(a.lengths);
  a.out = mirror.out(a.out);
  return a;
}

template <class Ranged>
requires std::same_as<Ranged, WindowRows> || std::same_as<Ranged, CompressedRows> Ranged on(Mirror& mirror, Ranged a) {
  a.queries = mirror.in(a.queries);
  a.block_table = mirror.in(a.block_table);
  a.valid = mirror.in(a.valid);
  a.out = mirror.out(a.out);
  return a;
}

inline Combine on(Mirror& mirror, Combine a) {
  a.topk = mirror.in(a.topk);
  a.queries = std::get<RequestQueries>(mirror.in(QueryLayout(a.queries)));
  a.gathered = mirror.in(a.gathered);
  a.out = mirror.out(a.out);
  return a;
}

inline CopyToGraphBuffers on(Mirror& mirror, const CopyToGraphBuffers& a) {
  return {std::get<RaggedRows>(mirror.in(RowSelection(a.source))), mirror.out(a.indices), mirror.out(a.indptr)};
}

// One name for all operators.
inline std::size_t workspace_bytes(const BuildRagged& a) { return build_ragged_workspace_bytes(a); }
inline std::size_t workspace_bytes(const TranslateTopk& a) { return translate_topk_workspace_bytes(a); }
inline std::size_t workspace_bytes(const WindowRows& a) { return window_rows_workspace_bytes(a); }
inline std::size_t workspace_bytes(const CompressedRows& a) { return compressed_rows_workspace_bytes(a); }
inline std::size_t workspace_bytes(const Combine& a) { return combine_workspace_bytes(a); }
inline std::size_t workspace_bytes(const CopyToGraphBuffers&) { return 0; }

inline void enqueue(const BuildRagged& a, Workspace w, Stream s) { build_ragged(a, w, s); }
inline void enqueue(const TranslateTopk& a, Workspace w, Stream s) { translate_topk(a, w, s); }
inline void enqueue(const WindowRows& a, Workspace w, Stream s) { window_rows(a, w, s); }
inline void enqueue(const CompressedRows& a, Workspace w, Stream s) { compressed_rows(a, w, s); }
inline void enqueue(const Combine& a, Workspace w, Stream s) { combine(a, w, s); }
inline void enqueue(const CopyToGraphBuffers& a, Workspace, Stream s) { copy_to_graph_buffers(a, s); }

inline void by_definition(const BuildRagged& a) { build_ragged(a, ListBackend::reference, {}, {}); }
inline void by_definition(const TranslateTopk& a) { translate_topk(a, ListBackend::reference, {}, {}); }
inline void by_definition(const WindowRows& a) { window_rows(a, ListBackend::reference, {}, {}); }
inline void by_definition(const CompressedRows& a) { compressed_rows(a, ListBackend::reference, {}, {}); }
inline void by_definition(const Combine& a) { combine(a, ListBackend::reference, {}, {}); }
inline void by_definition(const CopyToGraphBuffers& a) { copy_to_graph_buffers(a, ListBackend::reference, {}); }

/// Runs the call on a backend; the outputs of `host` hold the result.
template <class Arguments>
void run_lists(const Arguments& host, const Backend& backend) {
  Mirror mirror(backend.device);
  const Arguments arguments = on(mirror, host);
  enqueue(arguments, mirror.workspace(workspace_bytes(arguments)), mirror.stream());
  mirror.finish();
}

}  // namespace raggedmla::test
