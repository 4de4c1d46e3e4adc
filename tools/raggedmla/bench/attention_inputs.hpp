// Attention calls at the model's shapes, made on the device for the bench.
#pragma once

#include <string>
#include <vector>

#include "harness.hpp"

namespace raggedmla::bench {

/// How the rows of a call are named.
enum class RowKind { lists, ranges };

/// Prefill: T queries of one request over flat bf16 rows, or fp8 pages, `window` + `compressed` rows each.
struct PrefillShape {
  std::string name;
  std::int64_t tokens, heads, window, compressed;
  RowKind kind = RowKind::lists;
  double overlap = 0;               ///< of the compressed rows of neighbouring lists
  bool window_is_disjoint = false;  ///< no window of neighbouring rows: the whole list shares `overlap` with the next
  std::int64_t rows = 8192;         ///< of the flat buffer that lists name
  bool fp8_pages = false;           ///< of 64 rows; the compressed rows of ranges: of 2

  std::int64_t list_length() const { return window + compressed; }
  /// Of whole lists (Schedule::expected_overlap): neighbours share all but one row of a window.
  double expected_overlap() const {
    const double shared_window =
        window_is_disjoint ? overlap * static_cast<double>(window) : static_cast<double>(window - 1);
    return (shared_window + overlap * static_cast<double>(compressed)) / static_cast<double>(list_length());
  }
};

/// Decode: one query of each of `batch` requests over fp8 pages.
struct DecodeShape {
  std::string name;
  std::int64_t batch, heads, window, compressed;
  RowKind kind = RowKind::lists;
  int compressed_rows_per_page = 64;
  std::int64_t context_rows = 4096;  ///< compressed rows each request has

  std::int64_t list_length() const { return window + compressed; }
};

/// One buffer set of a call.
class AttentionInputs {
 public:
  AttentionInputs(const Bench& bench, const PrefillShape& shape, std::uint64_t seed);
  AttentionInputs(const Bench& bench, const DecodeShape& shape, std::uint64_t seed);
  AttentionInputs(const AttentionInputs&) = delete;
  AttentionInputs& operator=(const AttentionInputs&) = delete;

  /// Sets the kernel and provides scratch. Throws Error if the kernel does not take the call.
  void prepare(Schedule::Kernel kernel);
  void run(Stream stream) const { attention(call, workspace_, stream); }
  /// bf16 [T, H, 512], once the stream has been waited for.
  std::vector<std::uint16_t> output() const;

  Attention call;
  std::vector<Segment> segments;

  // For the gather ceiling: the longest explicit list's source, or null for ranges.
  const void* gathered_rows = nullptr;
  std::int64_t gathered_pitch = 0, gathered_row_bytes = 0;
  const std::int32_t* gathered_lists = nullptr;
  std::int64_t gathered_length = 0;

  double unique_bytes = 0;  ///< each distinct row, q, out and lists once

 private:
  TensorView tensor(DataType type, std::initializer_list<std::int64_t> shape);
  TensorView sequence(std::int64_t count, std::int64_t first, std::int64_t step);
  PagedKv fp8_pool(std::int64_t rows, int rows_per_page, std::uint64_t seed);
  void gather_from(const KvSource& source);
  void add_queries(std::int64_t tokens, std::int64_t heads, std::uint64_t seed);

  const Bench& bench_;
  std::vector<host::Memory> memory_;
  std::size_t output_ = 0;  // in memory_
  Workspace workspace_;
};

}  // namespace raggedmla::bench
