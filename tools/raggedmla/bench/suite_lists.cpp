// Suite `lists`: the row-list operators, each in a replayed graph, and the host cost of a call.
#include <fmt/format.h>

#include <algorithm>

#include "device_data.hpp"
#include "harness.hpp"

namespace raggedmla::bench {

namespace {

struct Shape {
  std::int64_t tokens, width;
};

/// Device tensors that live as long as a case.
class Tensors {
 public:
  explicit Tensors(const Bench& bench) : bench_(bench) {}

  TensorView i32(std::initializer_list<std::int64_t> shape, std::int64_t first = 0, std::int64_t step = 0) {
    TensorView view(nullptr, DataType::i32, shape, bench_.options.device);
    memory.push_back(bench_.allocate(static_cast<std::size_t>(view.size() + 1) * 4));
    view.data = memory.back().data();
    fill_sequence(static_cast<std::int32_t*>(view.data), view.size(), first, step, bench_.stream.get());
    return view;
  }
  TensorView lists(std::int64_t tokens, std::int64_t width) {
    TensorView view = i32({tokens, width});
    std::int64_t rows = 1;
    while (rows < 2 * width) rows *= 2;
    fill_lists(static_cast<std::int32_t*>(view.data), width, {tokens, width, rows, 0}, 11, bench_.stream.get());
    return view;
  }

  std::vector<host::Memory> memory;

 private:
  const Bench& bench_;
};

template <class Operator>
void measure(Bench& bench, const char* name, Shape shape, double bytes, const Operator& call) {
  Result r;
  r.suite = "lists";
  r.shape = fmt::format("T {} W {}", shape.tokens, shape.width);
  r.variant = name;
  r.microseconds = bench.time_graph(1, [&](int, Stream stream) { call(stream); });
  r.host_microseconds = bench.time_host(call);
  r.bytes = bytes;
  r.copy_floor = bytes / bench.ceilings.copy_bytes_per_second * 1e6;
  bench.results.push_back(r);
}

/// Entries of rows of lengths first, first + step, ... up to `width`.
double entries(Shape shape, std::int64_t first, std::int64_t step) {
  double sum = 0;
  for (std::int64_t t = 0; t < shape.tokens; ++t) sum += static_cast<double>(std::min(first + t * step, shape.width));
  return sum;
}

void build_ragged_case(Bench& bench, const char* name, Shape s, std::int64_t first_length, std::int64_t step) {
  Tensors tensors(bench);
  const BuildRagged arguments{tensors.lists(s.tokens, s.width),
                              tensors.i32({s.tokens}, first_length, step),
                              {tensors.i32({s.tokens * s.width}), tensors.i32({s.tokens + 1}), {}},
                              1 << 20};
  const Workspace workspace = bench.workspace(tensors.memory, build_ragged_workspace_bytes(arguments));
  const double bytes = 8.0 * (entries(s, first_length, step) + static_cast<double>(s.tokens));
  measure(bench, name, s, bytes, [&](Stream stream) { build_ragged(arguments, workspace, stream); });
}

void build_ragged_cases(Bench& bench) {
  for (const Shape s :
       {Shape{1, 512}, Shape{64, 512}, Shape{256, 512}, Shape{4096, 512}, Shape{8192, 1024}, Shape{262144, 128}}) {
    build_ragged_case(bench, "build_ragged", s, s.width, 0);
  }
  for (const Shape s : {Shape{64, 512}, Shape{256, 512}}) build_ragged_case(bench, "build_ragged growing", s, 1, 2);
  const Shape unaligned{8192, 1024};  // rows that start and end anywhere
  build_ragged_case(bench, "build_ragged W - 1", unaligned, unaligned.width - 1, 0);
}

void topk_cases(Bench& bench) {
  for (const Shape s : {Shape{64, 512}, Shape{256, 1024}, Shape{4096, 512}, Shape{8192, 1024}}) {
    for (const bool dense : {true, false}) {
      Tensors tensors(bench);
      constexpr std::int64_t requests = 16, columns = 64;
      TranslateTopk arguments;
      arguments.topk = tensors.lists(s.tokens, s.width);
      arguments.request_of_query = tensors.i32({s.tokens});
      arguments.block_table = tensors.i32({requests, columns}, 0, 1);
      if (dense) {
        arguments.out = DenseOutput{tensors.i32({s.tokens, s.width}), tensors.i32({s.tokens})};
      } else {
        arguments.out =
            RaggedOutput{tensors.i32({s.tokens * s.width}), tensors.i32({s.tokens + 1}), tensors.i32({s.tokens})};
      }
      const Workspace workspace = bench.workspace(tensors.memory, translate_topk_workspace_bytes(arguments));
      const double bytes = 8.0 * static_cast<double>(s.tokens * s.width);
      measure(bench, dense ? "translate_topk dense" : "translate_topk ragged", s, bytes,
              [&](Stream stream) { translate_topk(arguments, workspace, stream); });
    }
  }
}

void window_cases(Bench& bench) {
  for (const std::int64_t batch : {64, 256, 4096}) {
    Tensors tensors(bench);
    const RequestQueries queries{tensors.i32({batch + 1}, 0, 1), tensors.i32({batch}, 5000, 3)};
    WindowRows window;
    window.queries = queries;
    window.query_count = batch;
    window.block_table = tensors.i32({batch, 300}, 0, 1);
    window.width = 128;
    window.out = RaggedOutput{tensors.i32({batch * 128}), tensors.i32({batch + 1}), {}};
    Workspace workspace = bench.workspace(tensors.memory, window_rows_workspace_bytes(window));
    measure(bench, "window_rows ragged", {batch, 128}, 4.0 * static_cast<double>(batch * 128),
            [&](Stream stream) { window_rows(window, workspace, stream); });

    CompressedRows compressed;
    compressed.queries = queries;
    compressed.query_count = batch;
    compressed.block_table = tensors.i32({batch, 300}, 0, 1);
    compressed.width = 512;
    compressed.out = RaggedOutput{tensors.i32({batch * 512}), tensors.i32({batch + 1}), {}};
    workspace = bench.workspace(tensors.memory, compressed_rows_workspace_bytes(compressed));
    measure(bench, "compressed_rows ragged", {batch, 512}, 0,
            [&](Stream stream) { compressed_rows(compressed, workspace, stream); });

    const CopyToGraphBuffers copy{{tensors.i32({batch * 8192}), tensors.i32({batch + 1}, 0, 512)},
                                  tensors.i32({batch * 8192}),
                                  tensors.i32({batch + 1})};
    measure(bench, "copy_to_graph_buffers", {batch, 8192}, 8.0 * static_cast<double>(batch * 512),
            [&](Stream stream) { copy_to_graph_buffers(copy, stream); });
  }
}

void combine_cases(Bench& bench) {
  for (const Shape s : {Shape{4096, 512}, Shape{8192, 1024}}) {
    Tensors tensors(bench);
    Combine arguments;
    arguments.topk = tensors.lists(s.tokens, s.width);
    arguments.queries = {tensors.i32({2}, 0, s.tokens), tensors.i32({1}, s.tokens)};
    arguments.query_count = s.tokens;
    arguments.gathered = tensors.i32({1}, s.tokens);
    arguments.compressed_rows = s.tokens / 4;
    arguments.rows_per_request = s.tokens + s.tokens / 4;
    arguments.out = DenseOutput{tensors.i32({s.tokens, s.width + 128}), tensors.i32({s.tokens})};
    const Workspace workspace = bench.workspace(tensors.memory, combine_workspace_bytes(arguments));
    measure(bench, "combine dense", s, 8.0 * static_cast<double>(s.tokens * s.width),
            [&](Stream stream) { combine(arguments, workspace, stream); });
  }
}

}  // namespace

void run_lists(Bench& bench) {
  build_ragged_cases(bench);
  topk_cases(bench);
  window_cases(bench);
  combine_cases(bench);
}

}  // namespace raggedmla::bench
