// libFuzzer target: arguments of every operator made from random bytes, over small real CPU buffers.
//
// Views are drawn at random: type, rank, sizes, strides, null or not, and the lists' contents. Most calls are refused;
// the others must stay inside the tensors that they were given. The buffers are exactly as large as the views say, so
// that AddressSanitizer sees a byte too far. A call either throws Error or succeeds.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "raggedmla/raggedmla.hpp"

using namespace raggedmla;

namespace {

/// Decisions from the fuzzer's bytes; zeros when they run out.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  bool one_in(int n) { return byte() % n == n - 1; }
  std::int64_t below(std::int64_t bound) { return byte() % bound; }
  /// Mostly small numbers, sometimes extremes that a careless product or sum overflows on.
  std::int64_t number() {
    constexpr std::int64_t extremes[] = {-1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, std::int64_t{1} << 62};
    return one_in(16) ? extremes[below(6)] : below(12) - 1;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

/// Makes views over memory of their own.
class Tensors {
 public:
  explicit Tensors(Choices& choices) : choices_(choices) {}

  /// The shape and type that an operator takes, but for random faults.
  TensorView like(DataType type, std::initializer_list<std::int64_t> shape) {
    TensorView view(nullptr, type, shape);
    if (choices_.one_in(32)) view.dtype = static_cast<DataType>(choices_.below(6));
    if (choices_.one_in(32)) view.rank = static_cast<int>(choices_.below(6));  // 5 is beyond what a view can have
    for (int i = 0; i < std::min(view.rank, TensorView::max_rank); ++i) {
      if (choices_.one_in(24)) view.shape[i] = choices_.number();
      if (choices_.one_in(24)) view.stride[i] = choices_.number();
    }
    if (choices_.one_in(64)) view.device = {DeviceType::cuda, static_cast<int>(choices_.below(3)) - 1};
    give_memory(view);
    return view;
  }

  OptionalTensor maybe(DataType type, std::initializer_list<std::int64_t> shape) {
    return choices_.one_in(2) ? OptionalTensor(like(type, shape)) : std::nullopt;
  }

  DataType integer() { return choices_.one_in(2) ? DataType::i64 : DataType::i32; }

 private:
  /// The elements that the view names, or no memory where there are too many for a test.
  void give_memory(TensorView& view) {
    if (choices_.one_in(64)) return;
    double last = 0;
    for (int i = 0; i < std::min(view.rank, TensorView::max_rank); ++i) {
      if (view.shape[i] <= 0 || view.stride[i] < 0) return;
      last += static_cast<double>(view.shape[i] - 1) * static_cast<double>(view.stride[i]);
    }
    if (last > 1 << 16) {
      // Never to be touched: only the checks may look at such a view, which must refuse it or find no work in it.
      view.data = nullptr;
      return;
    }
    const std::size_t elements = static_cast<std::size_t>(last) + 1;
    const std::size_t bytes = elements * element_bytes(view.dtype);
    auto* memory = static_cast<std::uint8_t*>(::operator new (bytes, std::align_val_t{16}));
    memory_.emplace_back(memory);
    std::memset(memory, 0, bytes);
    if (view.dtype == DataType::i32 || view.dtype == DataType::i64) {
      for (std::size_t i = 0; i < std::min<std::size_t>(elements, 32); ++i) {
        const std::int64_t value = choices_.number();
        if (view.dtype == DataType::i64) reinterpret_cast<std::int64_t*>(memory)[i] = value;
        else reinterpret_cast<std::int32_t*>(memory)[i] = static_cast<std::int32_t>(value);
      }
    } else {
      const std::uint8_t fill = choices_.byte();
      std::memset(memory, fill, std::min<std::size_t>(bytes, 2048));
    }
    view.data = memory;
  }

  struct Free {
    void operator()(std::uint8_t* memory) const { ::operator delete (memory, std::align_val_t{16}); }
  };
  Choices& choices_;
  std::vector<std::unique_ptr<std::uint8_t, Free>> memory_;
};

class Calls {
 public:
  explicit Calls(Choices& choices) : choices_(choices), tensors_(choices) {}

  void one() {
    switch (choices_.below(11)) {
      case 0:
      case 1: return attend();
      case 2: return merge();
      case 3: return quantise();
      case 4: return dequantise();
      case 5: return gather();
      case 6: return build();
      case 7: return translate();
      case 8: return window();
      case 9: return compressed();
      default: return choices_.one_in(2) ? combine_lists() : copy();
    }
  }

 private:
  int rows_per_page() {
    return choices_.one_in(16) ? static_cast<int>(choices_.number()) : 1 + static_cast<int>(choices_.below(3));
  }

  PagedKv pages() {
    PagedKv source;
    source.rows_per_page = rows_per_page();
    const std::int64_t rows = std::clamp(source.rows_per_page, 1, 4);
    source.encoding = choices_.one_in(2) ? Fp8Encoding::fnuz : Fp8Encoding::ocp;
    source.pages = choices_.one_in(3) ? tensors_.like(DataType::bf16, {1 + choices_.below(3), rows, 512})
                                      : tensors_.like(DataType::u8, {1 + choices_.below(3), 592 * rows});
    return source;
  }

  KvSource source() {
    if (choices_.one_in(2)) return pages();
    return DenseKv{tensors_.like(DataType::bf16, {choices_.below(5), 512})};
  }

  RowSelection selection(std::int64_t queries) {
    const DataType type = tensors_.integer();
    switch (choices_.below(3)) {
      case 0: return RaggedRows{tensors_.like(type, {choices_.below(9)}), tensors_.like(type, {queries + 1})};
      case 1: return DenseRows{tensors_.like(type, {queries, choices_.below(5)}), tensors_.maybe(type, {queries})};
      default: break;
    }
    const std::int64_t requests = choices_.below(3);
    RangeRows rows;
    rows.first = tensors_.like(type, {queries});
    rows.count = tensors_.like(type, {queries});
    rows.query_start = tensors_.like(type, {requests + 1});
    if (choices_.one_in(2)) rows.block_table = tensors_.like(type, {requests, choices_.below(4)});
    else rows.row_base = tensors_.like(type, {requests});
    if (choices_.one_in(4)) rows.ring_rows = choices_.below(8);
    if (choices_.one_in(8)) rows.max_queries_per_request = choices_.number();
    return rows;
  }

  Workspace workspace(std::size_t bytes) {
    if (choices_.one_in(16)) return {};
    if (bytes > std::size_t{1} << 24) return {};
    const std::size_t given = choices_.one_in(16) ? bytes / 2 : bytes;
    scratch_.assign(given + 256, 0xFF);
    auto address = (reinterpret_cast<std::uintptr_t>(scratch_.data()) + 255) / 256 * 256;
    const Workspace result{reinterpret_cast<void*>(address), given, {}};
    initialize_workspace(result);
    return result;
  }

  void attend() {
    const std::int64_t queries = choices_.below(4), heads = 1 + choices_.below(3);
    std::vector<Segment> segments;
    for (std::int64_t count = choices_.one_in(16) ? choices_.below(6) : 1 + choices_.below(2); count > 0; --count) {
      segments.push_back({source(), selection(queries)});
    }
    Attention call;
    call.q = tensors_.like(DataType::bf16, {queries, heads, 512});
    call.segments = segments;
    call.sink = tensors_.maybe(DataType::f32, {heads});
    call.out = tensors_.like(choices_.one_in(2) ? DataType::f32 : DataType::bf16, {queries, heads, 512});
    call.lse = tensors_.maybe(DataType::f32, {queries, heads});
    call.max_logits = tensors_.maybe(DataType::f32, {queries, heads});
    if (choices_.one_in(4)) {
      call.epilogue.kind = Epilogue::Kind::inverse_rope;
      call.epilogue.cos_sin = tensors_.like(DataType::f32, {choices_.below(4), 64});
      call.epilogue.positions = tensors_.like(tensors_.integer(), {queries});
    }
    call.schedule.kernel = static_cast<Schedule::Kernel>(choices_.below(5));
    if (choices_.one_in(8)) call.schedule.splits = static_cast<int>(choices_.number());
    attention(call, workspace(attention_workspace_bytes(call)));
  }

  void merge() {
    const std::int64_t parts = choices_.below(3), queries = choices_.below(3), heads = 1 + choices_.below(2);
    MergeStates call;
    call.partial_out = tensors_.like(choices_.one_in(2) ? DataType::f32 : DataType::bf16, {parts, queries, heads, 512});
    call.partial_lse = tensors_.like(DataType::f32, {parts, queries, heads});
    call.sink = tensors_.maybe(DataType::f32, {heads});
    call.out = tensors_.like(DataType::bf16, {queries, heads, 512});
    call.lse = tensors_.maybe(DataType::f32, {queries, heads});
    merge_states(call);
  }

  void quantise() {
    const std::int64_t rows = choices_.below(4);
    quantize_rows({tensors_.like(DataType::bf16, {rows, 512}), tensors_.like(tensors_.integer(), {rows}), pages(),
                   choices_.one_in(2) ? ScaleFloor::quotient : ScaleFloor::amax});
  }

  void dequantise() {
    const std::int64_t rows = choices_.below(4);
    dequantize_rows({source(), tensors_.like(tensors_.integer(), {rows}), tensors_.like(DataType::bf16, {rows, 512})});
  }

  void gather() {
    const std::int64_t requests = choices_.below(3);
    const DataType type = tensors_.integer();
    gather_rows({pages(), tensors_.like(type, {requests, choices_.below(4)}), tensors_.like(type, {requests}),
                 tensors_.like(type, {requests}), tensors_.like(DataType::bf16, {requests, choices_.below(5), 512}),
                 choices_.one_in(4) ? choices_.number() : 0});
  }

  RaggedOutput ragged_output(std::int64_t queries, std::int64_t capacity) {
    return {tensors_.like(DataType::i32, {capacity}), tensors_.like(DataType::i32, {queries + 1}),
            tensors_.maybe(DataType::i32, {queries})};
  }

  ListOutput list_output(std::int64_t queries, std::int64_t width) {
    if (choices_.one_in(2)) return ragged_output(queries, queries * width);
    return DenseOutput{tensors_.like(DataType::i32, {queries, width}), tensors_.maybe(DataType::i32, {queries})};
  }

  RangeOrListOutput range_or_list_output(std::int64_t queries, std::int64_t width) {
    if (choices_.one_in(3)) {
      return RangeOutput{tensors_.like(DataType::i32, {queries}), tensors_.like(DataType::i32, {queries})};
    }
    return std::visit([](const auto& output) { return RangeOrListOutput(output); }, list_output(queries, width));
  }

  QueryLayout layout(std::int64_t queries) {
    const DataType type = tensors_.integer();
    if (choices_.one_in(2)) return PositionedQueries{tensors_.like(type, {queries}), tensors_.like(type, {queries})};
    return requests(choices_.below(3));
  }
  RequestQueries requests(std::int64_t count) {
    const DataType type = tensors_.integer();
    return {tensors_.like(type, {count + 1}), tensors_.like(type, {count})};
  }

  void build() {
    const std::int64_t queries = choices_.below(5), width = choices_.below(5);
    const DataType type = tensors_.integer();
    BuildRagged call{tensors_.like(type, {queries, width}), tensors_.maybe(type, {queries}),
                     ragged_output(queries, queries * width), choices_.number()};
    build_ragged(call, workspace(build_ragged_workspace_bytes(call)));
  }

  void translate() {
    const std::int64_t queries = choices_.below(5), width = choices_.below(5);
    const DataType type = tensors_.integer();
    TranslateTopk call{tensors_.like(type, {queries, width}),
                       tensors_.like(type, {queries}),
                       tensors_.like(type, {choices_.below(3), choices_.below(4)}),
                       rows_per_page(),
                       choices_.number(),
                       tensors_.maybe(DataType::boolean, {queries}),
                       tensors_.maybe(type, {queries}),
                       list_output(queries, width)};
    translate_topk(call, workspace(translate_topk_workspace_bytes(call)));
  }

  std::int64_t query_count(std::int64_t queries) { return choices_.one_in(16) ? choices_.number() : queries; }

  void window() {
    const std::int64_t queries = choices_.below(5), width = choices_.below(5);
    WindowRows call{layout(queries),
                    query_count(queries),
                    static_cast<int>(choices_.number()),
                    !choices_.one_in(4),
                    tensors_.maybe(tensors_.integer(), {choices_.below(3), choices_.below(4)}),
                    rows_per_page(),
                    tensors_.maybe(DataType::u8, {queries}),
                    width,
                    range_or_list_output(queries, width)};
    window_rows(call, workspace(window_rows_workspace_bytes(call)));
  }

  void compressed() {
    const std::int64_t queries = choices_.below(5), width = choices_.below(5);
    CompressedRows call{layout(queries),
                        query_count(queries),
                        static_cast<int>(choices_.number()),
                        tensors_.maybe(tensors_.integer(), {choices_.below(3), choices_.below(4)}),
                        rows_per_page(),
                        tensors_.maybe(DataType::u8, {queries}),
                        width,
                        range_or_list_output(queries, width)};
    compressed_rows(call, workspace(compressed_rows_workspace_bytes(call)));
  }

  void combine_lists() {
    const std::int64_t queries = choices_.below(5), width = choices_.below(4), count = choices_.below(3);
    const int window = 1 + static_cast<int>(choices_.below(3));
    Combine call{tensors_.maybe(tensors_.integer(), {queries, width}),
                 requests(count),
                 query_count(queries),
                 tensors_.like(tensors_.integer(), {count}),
                 choices_.number(),
                 choices_.number(),
                 choices_.one_in(8) ? static_cast<int>(choices_.number()) : 4,
                 window,
                 list_output(queries, width + window)};
    combine(call, workspace(combine_workspace_bytes(call)));
  }

  void copy() {
    const std::int64_t queries = choices_.below(5);
    const DataType type = tensors_.integer();
    copy_to_graph_buffers({{tensors_.like(type, {choices_.below(9)}), tensors_.like(type, {queries + 1})},
                           tensors_.like(type, {choices_.below(9)}),
                           tensors_.like(type, {queries + 1 + choices_.below(3)})});
  }

  Choices& choices_;
  Tensors tensors_;
  std::vector<std::uint8_t> scratch_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choices(data, size);
  try {
    Calls(choices).one();
  } catch (const Error&) {
  }
  return 0;
}
