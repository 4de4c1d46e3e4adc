/* One decode step of a compressed DeepSeek-V4 layer through the C ABI: two requests, fp8 pages, a sliding window and a
 * top-k selection. Same inputs as decode_step.cpp: queries of zeros weigh all rows alike, window rows hold 1,
 * compressed rows hold 3, so that the result is known. */
#include <math.h>
#include <raggedmla/raggedmla.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 512, HEADS = 8, REQUESTS = 2, TOP_K = 16, WINDOW = 128, PAGES = 6 };

static void require(raggedmla_status status) {
  if (status == RAGGEDMLA_OK) return;
  fprintf(stderr, "%s\n", raggedmla_last_error());
  exit(2);
}

static raggedmla_tensor vector(void* data, raggedmla_data_type type, int64_t size) {
  return raggedmla_packed(data, type, RAGGEDMLA_CPU, 0, 1, &size);
}

static raggedmla_tensor matrix(void* data, raggedmla_data_type type, int64_t rows, int64_t columns) {
  const int64_t shape[2] = {rows, columns};
  return raggedmla_packed(data, type, RAGGEDMLA_CPU, 0, 2, shape);
}

/* Fills a paged fp8 cache with rows of one value; `pages` is the view of its memory. */
static void fill_cache(const raggedmla_tensor* pages, int rows_per_page, uint16_t value) {
  const int rows = PAGES * rows_per_page;
  uint16_t* channels = malloc(sizeof(uint16_t) * rows * WIDTH);
  int32_t* slots = malloc(sizeof(int32_t) * rows);
  for (int i = 0; i < rows * WIDTH; ++i) channels[i] = value;
  for (int i = 0; i < rows; ++i) slots[i] = i;
  const raggedmla_tensor row_view = matrix(channels, RAGGEDMLA_BF16, rows, WIDTH);
  const raggedmla_tensor slot_view = vector(slots, RAGGEDMLA_I32, rows);
  raggedmla_kv cache = RAGGEDMLA_KV_INIT;
  cache.rows = pages;
  cache.rows_per_page = rows_per_page;
  raggedmla_quantize_rows_args args = RAGGEDMLA_QUANTIZE_ROWS_INIT;
  args.rows = &row_view;
  args.slots = &slot_view;
  args.cache = &cache;
  require(raggedmla_quantize_rows(&args, NULL));
  free(slots);
  free(channels);
}

int main(void) {
  printf("raggedmla %s\n", raggedmla_version());

  /* Pages of 64 and of 16 rows: 584 bytes a row, rounded up to a multiple of 576. */
  static uint8_t window_bytes[PAGES][65 * 576], compressed_bytes[PAGES][17 * 576];
  const raggedmla_tensor window_pages = matrix(window_bytes, RAGGEDMLA_U8, PAGES, sizeof window_bytes[0]);
  const raggedmla_tensor compressed_pages = matrix(compressed_bytes, RAGGEDMLA_U8, PAGES, sizeof compressed_bytes[0]);
  fill_cache(&window_pages, 64, 0x3F80);
  fill_cache(&compressed_pages, 16, 0x4040);

  /* Request 0 has 150 tokens, request 1 has 20. */
  int32_t query_start[] = {0, 1, 2}, sequence_lengths[] = {150, 20}, request_of_query[] = {0, 1};
  int32_t block_table[] = {4, 0, 2, 1, 3, 5}, topk[REQUESTS][TOP_K];
  for (int i = 0; i < TOP_K; ++i) {
    topk[0][i] = 2 * i;
    topk[1][i] = i < 5 ? i : -1;
  }
  const raggedmla_tensor query_start_view = vector(query_start, RAGGEDMLA_I32, REQUESTS + 1);
  const raggedmla_tensor sequence_lengths_view = vector(sequence_lengths, RAGGEDMLA_I32, REQUESTS);
  const raggedmla_tensor request_of_query_view = vector(request_of_query, RAGGEDMLA_I32, REQUESTS);
  const raggedmla_tensor table = matrix(block_table, RAGGEDMLA_I32, REQUESTS, 3);
  const raggedmla_tensor topk_view = matrix(topk, RAGGEDMLA_I32, REQUESTS, TOP_K);

  /* Lists of rows. */
  static int32_t window_slots[REQUESTS][WINDOW], topk_slots[REQUESTS][TOP_K];
  int32_t window_lengths[REQUESTS], topk_lengths[REQUESTS];
  const raggedmla_tensor window_slots_view = matrix(window_slots, RAGGEDMLA_I32, REQUESTS, WINDOW);
  const raggedmla_tensor window_lengths_view = vector(window_lengths, RAGGEDMLA_I32, REQUESTS);
  const raggedmla_tensor topk_slots_view = matrix(topk_slots, RAGGEDMLA_I32, REQUESTS, TOP_K);
  const raggedmla_tensor topk_lengths_view = vector(topk_lengths, RAGGEDMLA_I32, REQUESTS);

  raggedmla_query_layout queries = RAGGEDMLA_QUERY_LAYOUT_INIT;
  queries.query_start = &query_start_view;
  queries.sequence_lengths = &sequence_lengths_view;
  raggedmla_list_output window_list = RAGGEDMLA_LIST_OUTPUT_INIT, topk_list = RAGGEDMLA_LIST_OUTPUT_INIT;
  window_list.indices = &window_slots_view;
  window_list.lengths = &window_lengths_view;
  topk_list.indices = &topk_slots_view;
  topk_list.lengths = &topk_lengths_view;

  raggedmla_window_rows_args make_window = RAGGEDMLA_WINDOW_ROWS_INIT;
  make_window.queries = &queries;
  make_window.query_count = REQUESTS;
  make_window.window = WINDOW;
  make_window.block_table = &table;
  make_window.rows_per_page = 64;
  make_window.width = WINDOW;
  make_window.out = &window_list;
  require(raggedmla_window_rows(&make_window, NULL, NULL));

  raggedmla_translate_topk_args translate = RAGGEDMLA_TRANSLATE_TOPK_INIT;
  translate.topk = &topk_view;
  translate.request_of_query = &request_of_query_view;
  translate.block_table = &table;
  translate.rows_per_page = 16;
  translate.out = &topk_list;
  require(raggedmla_translate_topk(&translate, NULL, NULL));

  /* Attention over both. */
  static uint16_t q[REQUESTS * HEADS * WIDTH];
  static float out[REQUESTS * HEADS * WIDTH], lse[REQUESTS * HEADS], sink[HEADS];
  const int64_t shape[3] = {REQUESTS, HEADS, WIDTH};
  const raggedmla_tensor q_view = raggedmla_packed(q, RAGGEDMLA_BF16, RAGGEDMLA_CPU, 0, 3, shape);
  const raggedmla_tensor out_view = raggedmla_packed(out, RAGGEDMLA_F32, RAGGEDMLA_CPU, 0, 3, shape);
  const raggedmla_tensor lse_view = matrix(lse, RAGGEDMLA_F32, REQUESTS, HEADS);
  const raggedmla_tensor sink_view = vector(sink, RAGGEDMLA_F32, HEADS);

  raggedmla_kv window_kv = RAGGEDMLA_KV_INIT, compressed_kv = RAGGEDMLA_KV_INIT;
  window_kv.rows = &window_pages;
  window_kv.rows_per_page = 64;
  compressed_kv.rows = &compressed_pages;
  compressed_kv.rows_per_page = 16;
  raggedmla_rows window_selection = RAGGEDMLA_ROWS_INIT, topk_selection = RAGGEDMLA_ROWS_INIT;
  window_selection.indices = &window_slots_view;
  window_selection.lengths = &window_lengths_view;
  topk_selection.indices = &topk_slots_view;
  topk_selection.lengths = &topk_lengths_view;
  raggedmla_segment segments[2] = {RAGGEDMLA_SEGMENT_INIT, RAGGEDMLA_SEGMENT_INIT};
  segments[0].kv = &window_kv;
  segments[0].rows = &window_selection;
  segments[1].kv = &compressed_kv;
  segments[1].rows = &topk_selection;

  raggedmla_attention_args call = RAGGEDMLA_ATTENTION_INIT;
  call.q = &q_view;
  call.segments = segments;
  call.segment_count = 2;
  call.sink = &sink_view;
  call.out = &out_view;
  call.lse = &lse_view;

  raggedmla_workspace workspace = RAGGEDMLA_WORKSPACE_INIT;
  require(raggedmla_attention_workspace_bytes(&call, &workspace.bytes));
  void* scratch = malloc(workspace.bytes + 256);
  workspace.data = (void*)(((uintptr_t)scratch + 255) / 256 * 256);
  require(raggedmla_initialize_workspace(&workspace, NULL));
  require(raggedmla_attention(&call, &workspace, NULL));
  free(scratch);

  /* All logits are 0: out = (1 * window rows + 3 * top-k rows) / (rows + 1 for the sink), lse = log(rows). */
  for (int b = 0; b < REQUESTS; ++b) {
    const double rows = window_lengths[b] + topk_lengths[b];
    const double expected = (1.0 * window_lengths[b] + 3.0 * topk_lengths[b]) / (rows + 1);
    const double got = out[b * HEADS * WIDTH], got_lse = lse[b * HEADS];
    printf("request %d: %3d window rows, %2d compressed rows, out %.5f (expected %.5f), lse %.5f\n", b,
           window_lengths[b], topk_lengths[b], got, expected, got_lse);
    if (fabs(got - expected) > 1e-2 || fabs(got_lse - log(rows)) > 1e-3) return 1;
  }
  return 0;
}
