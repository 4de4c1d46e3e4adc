// A recorded layer is one request: a prefill of P tokens, then single-token decode steps.
//
// The prefill call is stored whole: its rows and lists. Of the decode steps only the cache after the last one is
// stored: a ring of 128 window rows (position modulo 128) and the compressed rows behind it. Compressed rows never
// change once written, so every step finds its own in that cache. A ring slot holds what was written there last: at the
// step of position p, slot s belonged to position p - ((p - s) mod 128). If that is among the last 128 positions of
// all, the final cache still holds it; otherwise a later step overwrote it, and as a window reaches 128 back, it is a
// prompt position as long as there are at most 128 steps: the prefill's rows begin with one window row per prompt
// token.
#include <fmt/format.h>

#include <cstring>

#include "raggedmla/error.hpp"
#include "verify.hpp"

namespace raggedmla::cli {
namespace {

constexpr std::int64_t ring_rows = 128;
/// The reference that recorded the layers keeps some intermediates in bf16.
constexpr io::Tolerance layer_tolerance{.out = 6e-3, .row = 2e-2, .logarithm = 1e-3};

struct Layer {
  io::TensorSet& tensors;
  std::int64_t prompt = 0, steps = 0, last_position = 0;
  TensorView q, attn_out, prefill_rows, final_cache;

  explicit Layer(io::TensorSet& set) : tensors(set) {
    q = require("q", DataType::bf16, 3);
    attn_out = require("attn_out", DataType::bf16, 3);
    prefill_rows = require("prefill_rows", DataType::bf16, 2);
    final_cache = require("final_cache", DataType::bf16, 2);
    prompt = require("prefill_indices", DataType::i32, 2).shape[0];
    steps = require("decode_indices", DataType::i32, 2).shape[0];
    last_position = prompt + steps - 1;
    expect(q.shape[0] == prompt + steps, "q", "one query per prompt token and decode step");
    expect(attn_out.shape == q.shape, "attn_out", "the shape of q");
    expect(q.shape[2] == v4_row.query_width, "q", "512 channels");
    expect(prefill_rows.shape[0] >= prompt && prefill_rows.shape[1] == v4_row.query_width, "prefill_rows",
           "rows of 512 channels, first one per prompt token");
    expect(final_cache.shape[0] >= ring_rows && final_cache.shape[1] == v4_row.query_width, "final_cache",
           "128 window rows of 512 channels, then compressed rows");
    expect(steps <= ring_rows && prompt >= ring_rows, "decode_indices",
           "at most 128 steps after at least 128 prompt tokens, so that overwritten rows are prompt rows");
  }

  void expect(bool condition, const char* tensor, const char* what) const {
    if (!condition)
      throw Error(fmt::format("{}: tensor '{}' does not fit the layer, expected {}", tensors.name(), tensor, what));
  }

  TensorView require(const char* name, DataType type, int rank) {
    const TensorView view = tensors.get(name);
    if (view.dtype != type || view.rank != rank) {
      throw Error(fmt::format("{}: tensor '{}' has type {} and {} dimensions, expected {} and {}", tensors.name(), name,
                              raggedmla::name(view.dtype), view.rank, raggedmla::name(type), rank));
    }
    return view;
  }

  /// A workload with the queries [begin, begin + count) of the layer.
  io::TensorSet workload(const char* op, std::int64_t begin, std::int64_t count) {
    io::TensorSet set(fmt::format("{} ({})", tensors.name(), op));
    set.metadata = {{"op", op}};
    copy_rows(set.add("q", DataType::bf16, {count, q.shape[1], q.shape[2]}), 0, q, begin, count);
    const TensorView sink = require("weight.attn_sink", DataType::f32, 1);
    copy_rows(set.add("sink", DataType::f32, {sink.shape[0]}), 0, sink, 0, sink.shape[0]);
    return set;
  }

  static void copy_rows(const TensorView& target, std::int64_t target_row, const TensorView& source, std::int64_t row,
                        std::int64_t rows) {
    const auto pitch = static_cast<std::size_t>(source.stride[0]) * element_bytes(source.dtype);
    std::memcpy(static_cast<std::byte*>(target.data) + static_cast<std::size_t>(target_row) * pitch,
                static_cast<const std::byte*>(source.data) + static_cast<std::size_t>(row) * pitch,
                static_cast<std::size_t>(rows) * pitch);
  }

  Verdict compare(io::TensorSet& workload, std::int64_t begin, const Target& target, std::string what) {
    AttentionRun run(workload, target);
    run.run();
    TensorView expected = attn_out;
    expected.data = static_cast<std::uint16_t*>(expected.data) + begin * expected.stride[0];
    expected.shape[0] = run.work().queries;
    Verdict verdict;
    verdict.what = std::move(what);
    verdict.comparison.emplace().add(run.result(), {expected, std::nullopt, std::nullopt});
    verdict.passed = verdict.comparison->within(layer_tolerance);
    return verdict;
  }

  Verdict verify_prefill(const Target& target) {
    io::TensorSet set = workload("prefill", 0, prompt);
    const TensorView lists = tensors.get("prefill_indices");
    copy_rows(set.add("kv", DataType::bf16, {prefill_rows.shape[0], prefill_rows.shape[1]}), 0, prefill_rows, 0,
              prefill_rows.shape[0]);
    copy_rows(set.add("indices", DataType::i32, {lists.shape[0], lists.shape[1]}), 0, lists, 0, prompt);
    return compare(set, 0, target, fmt::format("prefill of {} tokens", prompt));
  }

  /// Rows of both stores in one: the prefill's, then the final cache.
  Verdict verify_decode(const Target& target) {
    io::TensorSet set = workload("decode", prompt, steps);
    const std::int64_t cache = prefill_rows.shape[0];
    const TensorView kv = set.add("kv", DataType::bf16, {cache + final_cache.shape[0], prefill_rows.shape[1]});
    copy_rows(kv, 0, prefill_rows, 0, cache);
    copy_rows(kv, cache, final_cache, 0, final_cache.shape[0]);
    const TensorView lists = tensors.get("decode_indices");
    const TensorView indices = set.add("indices", DataType::i32, {steps, lists.shape[1]});
    for (std::int64_t i = 0; i < lists.size(); ++i) {
      const std::int32_t row = static_cast<const std::int32_t*>(lists.data)[i];
      const std::int64_t position = prompt + i / lists.shape[1];
      const std::int64_t written = position - (position - row) % ring_rows;
      const bool overwritten = row < ring_rows && written + ring_rows <= last_position;
      static_cast<std::int32_t*>(indices.data)[i] = static_cast<std::int32_t>(row < 0       ? -1
                                                                              : overwritten ? written
                                                                                            : cache + row);
    }
    return compare(set, prompt, target, fmt::format("{} decode steps", steps));
  }
};

}  // namespace

std::vector<Verdict> verify_layer(io::TensorSet& tensors, const Target& target) {
  Layer layer(tensors);
  return {layer.verify_prefill(target), layer.verify_decode(target)};
}

}  // namespace raggedmla::cli
