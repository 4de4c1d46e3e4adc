// One decode step of a compressed DeepSeek-V4 layer on the CPU: two requests, fp8 pages, a sliding window and a top-k
// selection. The inputs are chosen so that the result is known: queries of zeros weigh all rows alike, window rows hold
// 1, compressed rows hold 3. On a GPU the calls are the same, with device memory and a stream.
#include <raggedmla/raggedmla.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

using namespace raggedmla;

namespace {

constexpr int width = v4_row.query_width, heads = 8, requests = 2, top_k = 16, window = 128;
constexpr int window_page_rows = 64, compressed_page_rows = 16;
constexpr std::uint16_t bf16_one = 0x3F80, bf16_three = 0x4040;

/// A paged fp8 cache in which every row holds `value`.
struct Cache {
  std::vector<std::uint8_t> bytes;
  PagedKv pages;

  Cache(int page_count, int rows_per_page, std::uint16_t value) {
    // A page: rows_per_page * (576 data + 8 scale) bytes, rounded up so that rows of every page stay aligned.
    const std::int64_t page_bytes = (rows_per_page * (v4_row.data_bytes + v4_row.scale_bytes) + 575) / 576 * 576;
    bytes.resize(page_count * page_bytes);
    pages = {TensorView(bytes.data(), DataType::u8, {page_count, page_bytes}), rows_per_page};

    const int rows = page_count * rows_per_page;
    std::vector<std::uint16_t> channels(rows * width, value);
    std::vector<std::int32_t> slots(rows);
    for (int i = 0; i < rows; ++i) slots[i] = i;
    quantize_rows({TensorView(channels.data(), DataType::bf16, {rows, width}),
                   TensorView(slots.data(), DataType::i32, {rows}), pages});
  }
};

}  // namespace

int main() try {
  Cache window_cache(6, window_page_rows, bf16_one), compressed_cache(6, compressed_page_rows, bf16_three);

  // Request 0 has 150 tokens, request 1 has 20; each asks with its last one. Both have three pages in either cache.
  std::int32_t query_start[] = {0, 1, 2}, sequence_lengths[] = {150, 20}, request_of_query[] = {0, 1};
  std::int32_t block_table[] = {4, 0, 2, 1, 3, 5};
  const TensorView table(block_table, DataType::i32, {requests, 3});

  // What the indexer selected among the tokens / 4 compressed entries of each request; -1 fills up.
  std::int32_t topk[requests][top_k];
  for (int i = 0; i < top_k; ++i) {
    topk[0][i] = 2 * i;
    topk[1][i] = i < 5 ? i : -1;
  }

  // Lists of rows: window positions and top-k entries become slots through the block table.
  std::vector<std::int32_t> window_slots(requests * window), topk_slots(requests * top_k);
  std::int32_t window_lengths[requests], topk_lengths[requests];
  const DenseOutput window_list{TensorView(window_slots.data(), DataType::i32, {requests, window}),
                                TensorView(window_lengths, DataType::i32, {requests})};
  const DenseOutput topk_list{TensorView(topk_slots.data(), DataType::i32, {requests, top_k}),
                              TensorView(topk_lengths, DataType::i32, {requests})};

  WindowRows make_window;
  make_window.queries = RequestQueries{TensorView(query_start, DataType::i32, {requests + 1}),
                                       TensorView(sequence_lengths, DataType::i32, {requests})};
  make_window.query_count = requests;
  make_window.window = window;
  make_window.block_table = table;
  make_window.rows_per_page = window_page_rows;
  make_window.width = window;
  make_window.out = window_list;
  window_rows(make_window);

  TranslateTopk translate;
  translate.topk = TensorView(topk, DataType::i32, {requests, top_k});
  translate.request_of_query = TensorView(request_of_query, DataType::i32, {requests});
  translate.block_table = table;
  translate.rows_per_page = compressed_page_rows;
  translate.out = topk_list;
  translate_topk(translate);

  // Attention over both.
  std::vector<std::uint16_t> q(requests * heads * width, 0);
  std::vector<float> sink(heads, 0.0f), out(requests * heads * width), lse(requests * heads);
  const Segment segments[] = {{window_cache.pages, DenseRows{window_list.indices, window_list.lengths}},
                              {compressed_cache.pages, DenseRows{topk_list.indices, topk_list.lengths}}};
  Attention call;
  call.q = TensorView(q.data(), DataType::bf16, {requests, heads, width});
  call.segments = segments;
  call.sink = TensorView(sink.data(), DataType::f32, {heads});
  call.out = TensorView(out.data(), DataType::f32, {requests, heads, width});
  call.lse = TensorView(lse.data(), DataType::f32, {requests, heads});

  std::vector<std::byte> scratch(attention_workspace_bytes(call) + 256);
  void* aligned = scratch.data();
  std::size_t space = scratch.size();
  std::align(256, space - 256, aligned, space);
  const Workspace workspace{aligned, space, {}};
  initialize_workspace(workspace);
  attention(call, workspace);

  // All logits are 0: out = (1 * window rows + 3 * top-k rows) / (rows + 1 for the sink), lse = log(rows).
  for (int b = 0; b < requests; ++b) {
    const float rows = static_cast<float>(window_lengths[b] + topk_lengths[b]);
    const float expected = (1.0f * window_lengths[b] + 3.0f * topk_lengths[b]) / (rows + 1);
    const float got = out[b * heads * width], got_lse = lse[b * heads];
    std::printf("request %d: %3d window rows, %2d compressed rows, out %.5f (expected %.5f), lse %.5f\n", b,
                window_lengths[b], topk_lengths[b], got, expected, got_lse);
    if (std::abs(got - expected) > 1e-2f || std::abs(got_lse - std::log(rows)) > 1e-3f) return 1;
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
