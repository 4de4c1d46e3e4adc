// Suite `seeds`: the two findings that started this project, measured again.
//
// Engines built ragged lists with a host wait (the packed buffer was sized by the scan's last entry, read back). What
// that costs around the kernels:
//
//     previous kernel |  scan | read back ........ | pack | next kernel      host waits, the device idles
//     previous kernel |  scan | pack | next kernel                           no wait, two launches
//     previous kernel |  build_ragged | next kernel                          one launch
//
// And their prefill kernel lost half of its speed to a number of warps and a mask: ablation.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ablation.hpp"
#include "attention_inputs.hpp"
#include "base/bfloat16.hpp"
#include "device_data.hpp"
#include "harness.hpp"

namespace raggedmla::bench {

namespace {

constexpr double micro = 1e6;
constexpr std::uint64_t previous_kernel_ns = 60000;  // a decode attention

struct Lists {
  Lists(const Bench& bench, std::int64_t tokens_, std::int64_t width_) : tokens(tokens_), width(width_) {
    const auto buffer = [&](std::int64_t count) {
      memory.push_back(bench.allocate(static_cast<std::size_t>(count) * 4));
      return static_cast<std::int32_t*>(memory.back().data());
    };
    indices = buffer(tokens * width);
    lengths = buffer(tokens);
    flat = buffer(tokens * width);
    indptr = buffer(tokens + 1);
    const Stream stream = bench.stream.get();
    fill_sequence(indices, tokens * width, 0, 1, stream);
    fill_sequence(lengths, tokens, width, 0, stream);
    const Device device = bench.options.device;
    arguments = {TensorView(indices, DataType::i32, {tokens, width}, device),
                 TensorView(lengths, DataType::i32, {tokens}, device),
                 {TensorView(flat, DataType::i32, {tokens * width}, device),
                  TensorView(indptr, DataType::i32, {tokens + 1}, device),
                  {}},
                 -1};
    workspace = bench.workspace(memory, build_ragged_workspace_bytes(arguments));
  }
  std::int64_t tokens, width;
  std::vector<host::Memory> memory;
  std::int32_t *indices, *lengths, *flat, *indptr;
  BuildRagged arguments;
  Workspace workspace;
};

void host_wait(const Lists& lists, Stream stream) {
  scan_lengths(lists.lengths, lists.tokens, lists.width, lists.indptr, stream);
  static_cast<void>(read_back(lists.indptr + lists.tokens, stream));
  pack_rows(lists.indices, lists.width, lists.indptr, lists.tokens, lists.flat, stream);
}

void two_launches(const Lists& lists, Stream stream) {
  scan_lengths(lists.lengths, lists.tokens, lists.width, lists.indptr, stream);
  pack_rows(lists.indices, lists.width, lists.indptr, lists.tokens, lists.flat, stream);
}

void fused(const Lists& lists, Stream stream) { build_ragged(lists.arguments, lists.workspace, stream); }

void measure(Bench& bench, const Lists& lists, const char* name, void (*build)(const Lists&, Stream), bool graph_safe) {
  const Stream stream = bench.stream.get();
  const host::Memory stamps = bench.allocate(16);
  auto* end_of_previous = static_cast<std::uint64_t*>(stamps.data());
  std::vector<double> host, gap;
  for (int run = 0; run < 25; ++run) {
    bench.stream.synchronize();
    spin(previous_kernel_ns, end_of_previous, stream);
    const auto start = std::chrono::steady_clock::now();
    build(lists, stream);
    time_stamp(end_of_previous + 1, stream);
    host.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    bench.stream.synchronize();
    std::uint64_t times[2];
    stamps.download(times, sizeof(times));
    gap.push_back(static_cast<double>(times[1] - times[0]) * 1e-9);
  }
  Result r;
  r.suite = "seeds";
  r.shape = fmt::format("ragged lists T {} W {}", lists.tokens, lists.width);
  r.variant = name;
  if (graph_safe) r.microseconds = bench.time_graph(1, [&](int, Stream captured) { build(lists, captured); });
  r.host_microseconds = host::median(host) * micro;
  r.gap_microseconds = host::median(gap) * micro;
  r.note = fmt::format("gap = end of a {} us kernel to start of the next, building included{}",
                       previous_kernel_ns / 1000, graph_safe ? "" : "; cannot be captured");
  bench.results.push_back(r);
}

/// Outputs of kernels that differ in the order of their sums alone.
void require_close(const char* name, const std::vector<std::uint16_t>& found,
                   const std::vector<std::uint16_t>& expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double a = float_from_bf16(found[i]), b = float_from_bf16(expected[i]);
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  if (!(difference <= 1e-5 * norm)) {
    throw Error(fmt::format("bench: seeds: the kernel '{}' differs from the library's by {:.1e}, expected 3e-3 at most",
                            name, std::sqrt(difference / norm)));
  }
}

void measure_ablation(Bench& bench, const PrefillShape& shape) {
  const AttentionInputs inputs(bench, shape, 1);
  std::vector<std::uint16_t> expected;
  double library = 0;
  for (const AblatedKernel& kernel : ablated_kernels()) {
    Result r;
    r.suite = "seeds";
    r.shape = fmt::format("prefill H {} K {} T {}", shape.heads, shape.list_length(), shape.tokens);
    r.variant = kernel.name;
    r.microseconds = bench.time_graph(1, [&](int, Stream captured) { kernel.attend(inputs.call, captured); });
    bench.stream.synchronize();
    if (expected.empty()) {
      expected = inputs.output();
      library = r.microseconds;
    }
    require_close(kernel.name, inputs.output(), expected);
    r.ratio = r.microseconds / library;
    r.note = "the library's portable kernel";
    bench.results.push_back(r);
  }
}

}  // namespace

void run_seeds(Bench& bench) {
  for (const auto& [tokens, width] : {std::pair<std::int64_t, std::int64_t>{64, 512}, {4096, 512}, {8192, 1024}}) {
    const Lists lists(bench, tokens, width);
    measure(bench, lists, "host wait", host_wait, false);
    measure(bench, lists, "two launches", two_launches, true);
    measure(bench, lists, "build_ragged", fused, true);
  }
  for (const auto& [heads, topk] : {std::pair<std::int64_t, std::int64_t>{16, 1024}, {8, 512}, {16, 256}}) {
    measure_ablation(bench, {"ablation", 4096, heads, 128, topk, RowKind::lists, 0, true});
  }
}

}  // namespace raggedmla::bench
