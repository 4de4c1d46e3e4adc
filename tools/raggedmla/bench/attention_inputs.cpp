#include "attention_inputs.hpp"

#include <algorithm>

#include "device_data.hpp"

namespace raggedmla::bench {

namespace {

constexpr std::int64_t row_bytes_bf16 = std::int64_t{2} * v4_row.query_width;
constexpr std::int64_t row_bytes_fp8 = v4_row.data_bytes + v4_row.scale_bytes;

std::int32_t* i32(const TensorView& view) { return static_cast<std::int32_t*>(view.data); }

std::int64_t page_stride(int rows_per_page) { return (rows_per_page * row_bytes_fp8 + 575) / 576 * 576; }

}  // namespace

TensorView AttentionInputs::tensor(DataType type, std::initializer_list<std::int64_t> shape) {
  TensorView view(nullptr, type, shape, bench_.options.device);
  memory_.push_back(
      bench_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(view.size(), 1)) * element_bytes(type)));
  view.data = memory_.back().data();
  return view;
}

TensorView AttentionInputs::sequence(std::int64_t count, std::int64_t first, std::int64_t step) {
  const TensorView view = tensor(DataType::i32, {count});
  fill_sequence(i32(view), count, first, step, bench_.stream.get());
  return view;
}

void AttentionInputs::add_queries(std::int64_t tokens, std::int64_t heads, std::uint64_t seed) {
  call.q = tensor(DataType::bf16, {tokens, heads, v4_row.query_width});
  fill_bf16(call.q.data, call.q.size(), seed, bench_.stream.get());
  call.out = tensor(DataType::bf16, {tokens, heads, v4_row.value_width});
  output_ = memory_.size() - 1;
  call.sink = tensor(DataType::f32, {heads});
  host::synchronize(bench_.options.device);
  memory_.back().fill(0);
  unique_bytes += 2.0 * static_cast<double>(tokens * heads * row_bytes_bf16);
}

AttentionInputs::AttentionInputs(const Bench& bench, const PrefillShape& s, std::uint64_t seed) : bench_(bench) {
  const Stream stream = bench.stream.get();
  add_queries(s.tokens, s.heads, seed);
  const auto rows_buffer = [&](std::int64_t rows) {
    const TensorView view = tensor(DataType::bf16, {rows, v4_row.query_width});
    fill_bf16(view.data, view.size(), seed + 1, stream);
    return view;
  };
  if (s.kind == RowKind::lists) {
    const std::int64_t K = s.list_length();
    const TensorView rows = rows_buffer(s.rows);
    const TensorView indices = tensor(DataType::i32, {s.tokens * K});
    if (s.window_is_disjoint) {
      fill_lists(i32(indices), K, {s.tokens, K, s.rows, 0, s.overlap}, seed + 2, stream);
    } else {
      // Compressed rows in the lower half of the buffer, the window behind them, shared by neighbours but for one row.
      fill_lists(i32(indices), K, {s.tokens, s.compressed, s.rows / 2, 0, s.overlap}, seed + 2, stream);
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        const std::int64_t first = s.rows / 2 + t % (s.rows / 2 - s.window);
        fill_sequence(i32(indices) + t * K + s.compressed, s.window, first, 1, stream);
      }
    }
    segments = {{DenseKv{rows}, RaggedRows{indices, sequence(s.tokens + 1, 0, K)}}};
    gathered_rows = rows.data;
    gathered_pitch = gathered_row_bytes = row_bytes_bf16;
    gathered_lists = i32(indices);
    gathered_length = K;
    unique_bytes += static_cast<double>(s.rows * row_bytes_bf16 + s.tokens * K * 4);
  } else {
    const auto range = [&](std::int64_t rows, std::int64_t first_step, std::int64_t count) {
      RangeRows selection;
      selection.first = sequence(s.tokens, 0, first_step);
      selection.count = sequence(s.tokens, count, 0);
      selection.query_start = sequence(2, 0, s.tokens);
      selection.row_base = sequence(1, 0, 0);
      selection.max_queries_per_request = s.tokens;
      segments.push_back({DenseKv{rows_buffer(rows)}, selection});
      unique_bytes += static_cast<double>(rows * row_bytes_bf16);
    };
    range(s.tokens + s.window, 1, s.window);
    if (s.compressed > 0) range(s.compressed, 0, s.compressed);
  }
  call.segments = segments;
  call.schedule.expected_overlap = s.kind == RowKind::lists ? static_cast<float>(s.overlap) : -1.0f;
}

AttentionInputs::AttentionInputs(const Bench& bench, const DecodeShape& s, std::uint64_t seed) : bench_(bench) {
  const Stream stream = bench.stream.get();
  add_queries(s.batch, s.heads, seed);
  const auto pool = [&](std::int64_t rows, int rows_per_page) {
    const std::int64_t pages = rows / rows_per_page, stride = page_stride(rows_per_page);
    const TensorView view = tensor(DataType::u8, {pages, stride});
    fill_fp8_pages(view.data, pages, stride, rows_per_page, seed + 3, stream);
    return PagedKv{view, rows_per_page, Fp8Encoding::ocp};
  };
  // Every request has its own rows; a list holds distinct rows scattered over them.
  const auto lists = [&](const PagedKv& kv, std::int64_t rows, std::int64_t length) {
    const TensorView indices = tensor(DataType::i32, {s.batch * length});
    fill_lists(i32(indices), length, {s.batch, length, rows, rows, 0}, seed + 4, stream);
    segments.push_back({kv, RaggedRows{indices, sequence(s.batch + 1, 0, length)}});
    if (length >= gathered_length) {
      gathered_rows = kv.pages.data;
      gathered_pitch = kv.pages.stride[0] / kv.rows_per_page / 16 * 16;
      gathered_row_bytes = v4_row.data_bytes;
      gathered_lists = i32(indices);
      gathered_length = length;
    }
    unique_bytes += static_cast<double>(s.batch * length * (row_bytes_fp8 + 4));
  };
  lists(pool(s.batch * 2 * s.window, 64), 2 * s.window, s.window);
  if (s.compressed > 0) {
    const PagedKv kv = pool(s.batch * s.context_rows, s.compressed_rows_per_page);
    if (s.kind == RowKind::lists) {
      lists(kv, s.context_rows, s.compressed);
    } else {
      RangeRows range;
      const std::int64_t columns = s.context_rows / s.compressed_rows_per_page;
      range.first = sequence(s.batch, 0, 0);
      range.count = sequence(s.batch, s.compressed, 0);
      range.query_start = sequence(s.batch + 1, 0, 1);
      TensorView table = sequence(s.batch * columns, 0, 1);
      table.rank = 2;
      table.shape = {s.batch, columns};
      table.stride = {columns, 1};
      range.block_table = table;
      range.max_queries_per_request = 1;
      segments.push_back({kv, range});
      unique_bytes += static_cast<double>(s.batch * s.compressed * row_bytes_fp8);
    }
  }
  call.segments = segments;
}

std::vector<std::uint16_t> AttentionInputs::output() const {
  std::vector<std::uint16_t> values(static_cast<std::size_t>(call.out.size()));
  memory_[output_].download(values.data(), values.size() * sizeof(values[0]));
  return values;
}

void AttentionInputs::prepare(Schedule::Kernel kernel) {
  call.schedule.kernel = kernel;
  workspace_ = bench_.workspace(memory_, attention_workspace_bytes(call));
}

}  // namespace raggedmla::bench
