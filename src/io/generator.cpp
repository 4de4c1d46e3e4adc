#include "io/generator.hpp"

#include <fmt/format.h>
#include <algorithm>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "base/bfloat16.hpp"
#include "io/random.hpp"
#include "io/topk.hpp"
#include "raggedmla/error.hpp"

namespace raggedmla::io {
namespace {

constexpr std::int64_t max_context = std::int64_t{1} << 20;  // both models

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Numbers of the random streams. A new tensor takes a new number, so that the others keep their values.
enum Stream : std::uint64_t {
  q_stream = 1,
  sink_stream,
  flat_stream,
  window_stream,
  compressed_stream,
  window_table,
  compressed_table,
  topk_stream = 1 << 16
};

struct Query {
  std::int64_t index, request, position;
};

/// A request's logical rows in shuffled pages.
struct PageTable {
  std::int64_t columns = 0, rows_per_page = 1, pages = 0;
  std::vector<std::int32_t> entries;  // [batch, columns], -1 = not kept

  PageTable(std::int64_t batch, std::int64_t first_column, std::int64_t end_column, std::int64_t page_rows,
            RandomStream random)
      : columns(end_column), rows_per_page(page_rows), pages(batch * (end_column - first_column)) {
    std::vector<std::int32_t> shuffled(static_cast<std::size_t>(pages));
    std::iota(shuffled.begin(), shuffled.end(), 0);
    for (std::int64_t i = pages - 1; i > 0; --i) {
      std::swap(shuffled[static_cast<std::size_t>(i)], shuffled[static_cast<std::size_t>(random.below(i + 1))]);
    }
    auto page = shuffled.begin();
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t column = 0; column < columns; ++column) {
        entries.push_back(column < first_column ? -1 : *page++);
      }
    }
  }

  std::int64_t slot(std::int64_t request, std::int64_t row) const {
    return entries[static_cast<std::size_t>(request * columns + row / rows_per_page)] * rows_per_page +
           row % rows_per_page;
  }
};

/// Where a request's logical row lies in the source of a list.
using Locate = std::function<std::int64_t(std::int64_t request, std::int64_t row)>;
/// Appends the slots that a query reads.
using ListPart = std::function<void(const Query&, std::vector<std::int64_t>& slots)>;

using Progress = std::function<void(std::int64_t, std::int64_t)>;

class Generator {
 public:
  Generator(const WorkloadShape& shape, const Progress& progress)
      : shape_(shape), progress_(progress), set_("generated workload") {}

  TensorSet make() {
    check();
    add_metadata();
    add_queries();
    if (shape_.store == Store::flat) {
      add_flat();
    } else {
      add_paged_window();
      if (ratio_ > 0) add_paged_compressed();
    }
    return std::move(set_);
  }

 private:
  // ---- shape -------------------------------------------------------------------------------------------------------

  static void require(bool condition, const std::string& message) {
    if (!condition) throw Error("make-workload: " + message);
  }

  void check() const {
    const std::int64_t all_heads = model_shape(shape_.model).heads;
    require(shape_.tensor_parallel >= 1 && all_heads % shape_.tensor_parallel == 0,
            fmt::format("tensor-parallel degree is {}, expected a divisor of the model's {} heads",
                        shape_.tensor_parallel, all_heads));
    require(shape_.context >= 1 && shape_.context <= max_context,
            fmt::format("context is {}, expected 1 to {} tokens", shape_.context, max_context));
    require(shape_.tokens >= 1 && shape_.tokens <= shape_.context,
            fmt::format("tokens is {}, expected 1 to the context of {}", shape_.tokens, shape_.context));
    require(shape_.batch >= 1, fmt::format("batch is {}, expected at least 1", shape_.batch));
    require(shape_.overlap >= 0 && shape_.overlap <= 1, fmt::format("overlap is {}, expected 0 to 1", shape_.overlap));
    require(shape_.phase == Phase::prefill || shape_.store == Store::pages,
            "a flat store is for prefill; decode reads pages");
    require(
        shape_.batch <= (std::int64_t{1} << 30) / round_up(shape_.context + window_rows, 64),
        fmt::format("batch {} x context {} has more rows than 32-bit lists can name", shape_.batch, shape_.context));
  }

  Query query(std::int64_t index) const {
    return {index, index / shape_.tokens, shape_.context - shape_.tokens + index % shape_.tokens};
  }
  std::int64_t queries() const { return shape_.batch * shape_.tokens; }
  static std::int64_t window_count(const Query& q) { return std::min(q.position + 1, window_rows); }
  static std::int64_t window_first(const Query& q) { return q.position + 1 - window_count(q); }
  std::int64_t compressed_count(const Query& q) const { return (q.position + 1) / ratio_; }
  /// Columns of a list of compressed rows, as engines size it.
  std::int64_t compressed_width() const {
    return shape_.layer == Layer::csa ? top_k_ : ratio_ > 0 ? round_up(shape_.context / ratio_, window_rows) : 0;
  }
  std::int64_t prefix() const { return shape_.context - shape_.tokens; }
  /// The first position that any window of a request reaches.
  std::int64_t oldest_position() const { return std::max<std::int64_t>(0, prefix() - (window_rows - 1)); }

  /// Rows of all caches: what takes the time.
  std::int64_t rows_to_make() const {
    const std::int64_t window = window_columns() * window_rows_per_page;
    return shape_.batch * (window + (ratio_ > 0 ? compressed_columns() * compressed_rows_per_page(shape_.layer) : 0));
  }
  std::int64_t window_columns() const { return end_window_column() - oldest_position() / window_rows_per_page; }
  std::int64_t end_window_column() const {
    return round_up(shape_.context, window_rows_per_page) / window_rows_per_page;
  }
  std::int64_t compressed_columns() const { return round_up(shape_.context, 256) / 256; }

  // ---- tensors -----------------------------------------------------------------------------------------------------

  void add_metadata() {
    const auto set = [&](const char* key, const auto& value) { set_.metadata[key] = fmt::format("{}", value); };
    set("op", shape_.phase == Phase::prefill ? "prefill" : "decode");
    set("scale", "0.04419417382415922");
    set("model", shape_.model == Model::flash ? "flash" : "pro");
    set("layer", shape_.layer == Layer::swa ? "swa" : shape_.layer == Layer::csa ? "csa" : "hca");
    set("batch", shape_.batch);
    set("tokens", shape_.tokens);
    set("context", shape_.context);
    set("tensor_parallel", shape_.tensor_parallel);
    set("seed", shape_.seed);
    set("overlap", shape_.overlap);
    set("producer", "raggedmla make-workload");
  }

  void fill(const TensorView& view, std::uint64_t stream) const {
    RandomStream random(shape_.seed, stream);
    for (std::int64_t i = 0; i < view.size(); ++i) {
      const float value = random.normal();
      if (view.dtype == DataType::f32) {
        static_cast<float*>(view.data)[i] = value;
      } else {
        static_cast<std::uint16_t*>(view.data)[i] = bf16_from_float(value);
      }
    }
  }

  void add_queries() {
    const std::int64_t heads = model_shape(shape_.model).heads / shape_.tensor_parallel;
    fill(set_.add("q", DataType::bf16, {queries(), heads, v4_row.query_width}), q_stream);
    fill(set_.add("sink", DataType::f32, {heads}), sink_stream);
  }

  TensorView add_integers(const std::string& name, const std::vector<std::int64_t>& shape) {
    return set_.add(name, DataType::i32, shape);
  }

  /// fp8 pages full of random rows, written by the library's own quantiser a few thousand rows at a time.
  void add_pages(const std::string& prefix, const PageTable& table, Fp8Encoding encoding, std::uint64_t stream) {
    constexpr std::int64_t piece = 4096;
    const std::int64_t row_bytes = v4_row.data_bytes + v4_row.scale_bytes;
    const TensorView pages = set_.add(prefix + "pages", DataType::u8,
                                      {table.pages, round_up(row_bytes * table.rows_per_page, v4_row.data_bytes)});
    std::memset(pages.data, 0, packed_bytes(pages));
    set_.metadata[prefix + "rows_per_page"] = std::to_string(table.rows_per_page);
    set_.metadata[prefix + "encoding"] = encoding == Fp8Encoding::ocp ? "ocp" : "fnuz";

    const std::int64_t count = table.pages * table.rows_per_page;
    RandomStream random(shape_.seed, stream);
    std::vector<std::uint16_t> rows(static_cast<std::size_t>(piece * v4_row.query_width));
    std::vector<std::int64_t> slots(piece);
    for (std::int64_t begin = 0; begin < count; begin += piece) {
      const std::int64_t size = std::min(piece, count - begin);
      for (std::uint16_t& value : rows) value = bf16_from_float(random.normal());
      std::iota(slots.begin(), slots.end(), begin);
      quantize_rows({.rows = TensorView(rows.data(), DataType::bf16, {size, v4_row.query_width}),
                     .slots = TensorView(slots.data(), DataType::i64, {size}),
                     .cache = {pages, static_cast<int>(table.rows_per_page), encoding}});
      if (progress_) progress_(size, rows_to_make());
    }
  }

  // ---- selections --------------------------------------------------------------------------------------------------

  void add_list(const std::string& prefix, std::int64_t width, const std::vector<ListPart>& parts) {
    const TensorView indices = add_integers(prefix + "indices", {queries(), width});
    const TensorView lengths = add_integers(prefix + "lengths", {queries()});
    auto* entries = static_cast<std::int32_t*>(indices.data);
    std::fill_n(entries, indices.size(), -1);
    std::vector<std::int64_t> slots;
    for (std::int64_t t = 0; t < queries(); ++t) {
      slots.clear();
      for (const ListPart& part : parts) part(query(t), slots);
      for (std::size_t i = 0; i < slots.size(); ++i) {
        entries[t * width + static_cast<std::int64_t>(i)] = static_cast<std::int32_t>(slots[i]);
      }
      static_cast<std::int32_t*>(lengths.data)[t] = static_cast<std::int32_t>(slots.size());
    }
  }

  static ListPart window_part(Locate locate) {
    return [locate = std::move(locate)](const Query& q, std::vector<std::int64_t>& slots) {
      for (std::int64_t i = 0; i < window_count(q); ++i) slots.push_back(locate(q.request, window_first(q) + i));
    };
  }

  ListPart compressed_part(Locate locate) const {
    if (shape_.layer == Layer::hca) {
      return [this, locate = std::move(locate)](const Query& q, std::vector<std::int64_t>& slots) {
        for (std::int64_t e = 0; e < compressed_count(q); ++e) slots.push_back(locate(q.request, e));
      };
    }
    auto lists = std::make_shared<TopkLists>(0, 0, 0, RandomStream(0, 0));
    return [this, lists, locate = std::move(locate)](const Query& q, std::vector<std::int64_t>& slots) {
      if (q.index % shape_.tokens == 0) {  // a request begins
        *lists = TopkLists(shape_.context / ratio_, top_k_, shape_.overlap,
                           RandomStream(shape_.seed, topk_stream + static_cast<std::uint64_t>(q.request)));
      }
      for (const std::int64_t e : lists->next(compressed_count(q))) slots.push_back(locate(q.request, e));
    };
  }

  /// `first` and `count` of every query, and which queries a request owns.
  template <class First, class Count>
  void add_range(const std::string& prefix, First first, Count count) {
    const TensorView firsts = add_integers(prefix + "first", {queries()});
    const TensorView counts = add_integers(prefix + "count", {queries()});
    const TensorView starts = add_integers(prefix + "query_start", {shape_.batch + 1});
    for (std::int64_t t = 0; t < queries(); ++t) {
      static_cast<std::int32_t*>(firsts.data)[t] = static_cast<std::int32_t>(first(query(t)));
      static_cast<std::int32_t*>(counts.data)[t] = static_cast<std::int32_t>(count(query(t)));
    }
    for (std::int64_t b = 0; b <= shape_.batch; ++b) {
      static_cast<std::int32_t*>(starts.data)[b] = static_cast<std::int32_t>(b * shape_.tokens);
    }
    set_.metadata[prefix + "max_queries_per_request"] = std::to_string(shape_.tokens);
  }

  void add_block_table(const std::string& prefix, const PageTable& table) {
    const TensorView view = add_integers(prefix + "block_table", {shape_.batch, table.columns});
    std::copy(table.entries.begin(), table.entries.end(), static_cast<std::int32_t*>(view.data));
  }

  void add_row_base(const std::string& prefix, std::int64_t rows_per_request) {
    const TensorView view = add_integers(prefix + "row_base", {shape_.batch});
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      static_cast<std::int32_t*>(view.data)[b] = static_cast<std::int32_t>(b * rows_per_request);
    }
  }

  bool as_range(Layer part) const { return shape_.rows == RowForm::range && part != Layer::csa; }

  // ---- the two stores ----------------------------------------------------------------------------------------------

  void add_paged_window() {
    const PageTable table(shape_.batch, oldest_position() / window_rows_per_page, end_window_column(),
                          window_rows_per_page, RandomStream(shape_.seed, window_table));
    add_pages("main_", table, shape_.window_encoding, window_stream);
    if (as_range(Layer::swa)) {
      add_range("main_", window_first, window_count);
      add_block_table("main_", table);
    } else {
      add_list("main_", window_rows, {window_part([&](auto request, auto row) { return table.slot(request, row); })});
    }
  }

  void add_paged_compressed() {
    const std::int64_t page_rows = compressed_rows_per_page(shape_.layer);
    const PageTable table(shape_.batch, 0, compressed_columns(), page_rows,
                          RandomStream(shape_.seed, compressed_table));
    add_pages("extra_", table, Fp8Encoding::ocp, compressed_stream);
    if (as_range(shape_.layer)) {
      add_range(
          "extra_", [](const Query&) { return 0; }, [&](const Query& q) { return compressed_count(q); });
      add_block_table("extra_", table);
    } else {
      add_list("extra_", compressed_width(),
               {compressed_part([&](auto request, auto row) { return table.slot(request, row); })});
    }
  }

  /// Request b holds compressed rows at [M b, M b + N), then its window rows from the oldest one on.
  void add_flat() {
    const std::int64_t compressed = ratio_ > 0 ? shape_.context / ratio_ : 0;
    const std::int64_t per_request = compressed + shape_.context - oldest_position();
    fill(set_.add("kv", DataType::bf16, {shape_.batch * per_request, v4_row.query_width}), flat_stream);
    const Locate locate_compressed = [=](std::int64_t request, std::int64_t row) {
      return request * per_request + row;
    };
    const Locate locate_window = [=, oldest = oldest_position()](std::int64_t request, std::int64_t position) {
      return request * per_request + compressed + position - oldest;
    };
    if (!as_range(Layer::swa)) {
      std::vector<ListPart> parts;
      if (ratio_ > 0) parts.push_back(compressed_part(locate_compressed));
      parts.push_back(window_part(locate_window));
      add_list("", round_up(compressed_width() + window_rows, window_rows), parts);
      return;
    }
    add_range(
        "main_", [&](const Query& q) { return locate_window(0, window_first(q)); }, window_count);
    add_row_base("main_", per_request);
    if (shape_.layer == Layer::csa) {
      add_list("extra_", compressed_width(), {compressed_part(locate_compressed)});
    } else if (shape_.layer == Layer::hca) {
      add_range(
          "extra_", [](const Query&) { return 0; }, [&](const Query& q) { return compressed_count(q); });
      add_row_base("extra_", per_request);
    }
  }

  const WorkloadShape shape_;
  const Progress& progress_;
  const std::int64_t ratio_ = compress_ratio(shape_.layer);
  const std::int64_t top_k_ = model_shape(shape_.model).top_k;
  TensorSet set_;
};

}  // namespace

TensorSet make_workload(const WorkloadShape& shape, const Progress& progress) {
  return Generator(shape, progress).make();
}

}  // namespace raggedmla::io
