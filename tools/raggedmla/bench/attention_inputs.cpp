#include "attention_inputs.hpp"

#include <algorithm>

#include "device_data.hpp"

namespace raggedmla::bench {

namespace {

constexpr std::int64_t row_bytes_bf16 = std::int64_t{2} * v4_row.query_width;
constexpr std::int64_t row_bytes_fp8 = v4_row.data_bytes + v4_row.scale_bytes;

std::int32_t* i32(const TensorView& view) { return static_cast<std::int32_t*>(view.data); }

std::int64_t page_stride(int rows_per_page) { return (rows_per_page * row_bytes_fp8 + 575) / 576 * 576; }

/// A sequence as the block table of `requests` requests.
TensorView as_table(TensorView sequence, std::int64_t requests) {
  const std::int64_t columns = sequence.shape[0] / requests;
  sequence.rank = 2;
  sequence.shape = {requests, columns};
  sequence.stride = {columns, 1};
  return sequence;
}

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

PagedKv AttentionInputs::fp8_pool(std::int64_t rows, int rows_per_page, std::uint64_t seed) {
  const std::int64_t pages = (rows + rows_per_page - 1) / rows_per_page, stride = page_stride(rows_per_page);
  const TensorView view = tensor(DataType::u8, {pages, stride});
  fill_fp8_pages(view.data, pages, stride, rows_per_page, seed, bench_.stream.get());
  return PagedKv{view, rows_per_page, Fp8Encoding::ocp};
}

void AttentionInputs::gather_from(const KvSource& source) {
  if (const auto* rows = std::get_if<DenseKv>(&source)) {
    gathered_rows = rows->rows.data;
    gathered_pitch = gathered_row_bytes = row_bytes_bf16;
  } else {
    const auto& pages = std::get<PagedKv>(source);
    gathered_rows = pages.pages.data;
    gathered_pitch = pages.pages.stride[0] / pages.rows_per_page / 16 * 16;
    gathered_row_bytes = v4_row.data_bytes;
  }
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
  const std::int64_t row_bytes = s.fp8_pages ? row_bytes_fp8 : row_bytes_bf16;
  const auto source = [&](std::int64_t rows, int rows_per_page) -> KvSource {
    if (s.fp8_pages) return fp8_pool(rows, rows_per_page, seed + 1);
    const TensorView view = tensor(DataType::bf16, {rows, v4_row.query_width});
    fill_bf16(view.data, view.size(), seed + 1, stream);
    return DenseKv{view};
  };
  if (s.kind == RowKind::lists) {
    const std::int64_t K = s.list_length();
    const KvSource rows = source(s.rows, 64);
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
    segments = {{rows, RaggedRows{indices, sequence(s.tokens + 1, 0, K)}}};
    gather_from(rows);
    gathered_lists = i32(indices);
    gathered_length = K;
    unique_bytes += static_cast<double>(s.rows * row_bytes + s.tokens * K * 4);
  } else {
    const auto range = [&](std::int64_t rows, int rows_per_page, std::int64_t first_step, std::int64_t count) {
      RangeRows selection;
      selection.first = sequence(s.tokens, 0, first_step);
      selection.count = sequence(s.tokens, count, 0);
      selection.query_start = sequence(2, 0, s.tokens);
      if (s.fp8_pages) {  // a table that is not in the order of the pages
        const std::int64_t pages = (rows + rows_per_page - 1) / rows_per_page;
        selection.block_table = as_table(sequence(pages, pages - 1, -1), 1);
      } else {
        selection.row_base = sequence(1, 0, 0);
      }
      selection.max_queries_per_request = s.tokens;
      segments.push_back({source(rows, rows_per_page), selection});
      unique_bytes += static_cast<double>(rows * row_bytes);
    };
    range(s.tokens + s.window, 64, 1, s.window);
    if (s.compressed > 0) range(s.compressed, 2, 0, s.compressed);
  }
  call.segments = segments;
  if (s.kind == RowKind::lists) call.schedule.expected_overlap = static_cast<float>(s.expected_overlap());
}

AttentionInputs::AttentionInputs(const Bench& bench, const DecodeShape& s, std::uint64_t seed) : bench_(bench) {
  const Stream stream = bench.stream.get();
  add_queries(s.batch, s.heads, seed);
  // Every request has its own rows; a list holds distinct rows scattered over them.
  const auto lists = [&](const PagedKv& kv, std::int64_t rows, std::int64_t length) {
    const TensorView indices = tensor(DataType::i32, {s.batch * length});
    fill_lists(i32(indices), length, {s.batch, length, rows, rows, 0}, seed + 4, stream);
    segments.push_back({kv, RaggedRows{indices, sequence(s.batch + 1, 0, length)}});
    if (length >= gathered_length) {
      gather_from(kv);
      gathered_lists = i32(indices);
      gathered_length = length;
    }
    unique_bytes += static_cast<double>(s.batch * length * (row_bytes_fp8 + 4));
  };
  lists(fp8_pool(s.batch * 2 * s.window, 64, seed + 3), 2 * s.window, s.window);
  if (s.compressed > 0) {
    const PagedKv kv = fp8_pool(s.batch * s.context_rows, s.compressed_rows_per_page, seed + 3);
    if (s.kind == RowKind::lists) {
      lists(kv, s.context_rows, s.compressed);
    } else {
      RangeRows range;
      const std::int64_t columns = s.context_rows / s.compressed_rows_per_page;
      range.first = sequence(s.batch, 0, 0);
      range.count = sequence(s.batch, s.compressed, 0);
      range.query_start = sequence(s.batch + 1, 0, 1);
      range.block_table = as_table(sequence(s.batch * columns, 0, 1), s.batch);
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
