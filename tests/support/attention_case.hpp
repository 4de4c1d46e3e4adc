// Attention calls made from a line of a table: random rows, lists of every kind, and the comparison with reference.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "support/mirror.hpp"

namespace raggedmla::test {

enum class Store { flat, bf16_pages, fp8_ocp, fp8_fnuz };
enum class List { ragged, dense, dense_lengths, range_table, range_flat, range_ring };
enum class Sink { none, normal, infinities };

struct SegmentCase {
  Store store = Store::flat;
  List list = List::dense;
  std::int64_t length = 64;  // K, the longest list
  std::int64_t rows = 512;   // of the source
  int rows_per_page = 64;
  bool wide = false;               // i64 lists
  double invalid = 0;              // share of entries that are -1 or out of range
  std::int64_t page_multiple = 1;  // page (or flat row) stride as a multiple of the payload (layers that share a slab)
  double overlap = -1;             // share of a list (range) that the one before has, too; < 0 = rows at random
  bool nan_rows = false;           // of the rows that only one query selects, some hold NaN: one of every second query
  std::int64_t first_row = 0;      // rows before it are neither selected nor written
};

struct AttentionCase {
  std::string name;
  std::int64_t tokens = 3;
  std::int64_t heads = 16;
  std::vector<SegmentCase> segments;
  Sink sink = Sink::none;
  bool f32_out = false;
  bool rope = false;
  bool strided = false;  // q, out, lse, lists as slices of larger tensors
  int splits = 0;
  std::uint64_t seed = 1;
  float stated_overlap = -1;      // the hint of the call
  std::int64_t query_stride = 0;  // of q and out in elements, 0 = as `strided` says
  bool gpu_only = false;          // too much work for a CPU
  std::int64_t out_pad = 0;       // elements between the rows of out, 0 = as `strided` says
};

class Selected;

/// Owns the tensors of a call. Every row that no query selects holds NaN: a backend that reads one shows it.
class AttentionData {
 public:
  explicit AttentionData(const AttentionCase& description);

  Attention call;                 // outputs: `out`, `lse`, `max_logits`
  std::vector<Segment> segments;  // what call.segments views
  Tensor q, sink, out, lse, max_logits, cos_sin, positions;
  Random random;

  /// Fills the outputs with NaN again.
  void forget_outputs();

  /// Copies the values of another call of the same shapes into this one's tensors (addresses stay).
  void take_values(const AttentionData& other);

  /// A tensor that lives as long as the data.
  Tensor& keep(Tensor tensor);

 private:
  void add_segment(const SegmentCase& description, const AttentionCase& whole);
  RowSelection make_list(const SegmentCase& description, const AttentionCase& whole, Selected& selected);
  RowSelection make_range(const SegmentCase& description, const AttentionCase& whole, Selected& selected);

  std::deque<Tensor> tensors_;
};

/// What reference gives for a call: f32 out, lse, max_logits, `[n, H, ...]` packed.
struct Expected {
  Tensor out, lse, max_logits;
  std::vector<std::int64_t> queries;  // of the call, in order; n of them
};
Expected reference_of(const Attention& call);
/// The same for some queries of the call: attention is defined query by query.
Expected reference_of(const Attention& call, const std::vector<std::int64_t>& queries);

/// Of the expected queries: relative error of `out` <= 4e-3 over all and <= 1e-2 in every row, lse and max_logits <=
/// 1e-3 absolute, infinities and zeros of empty rows exact. `what` names the case in failures.
void expect_close(const Attention& actual, const Expected& expected, const std::string& what);

/// A row of a source as bf16 values, written by hand in tests.
Tensor rows_of(const std::vector<std::vector<double>>& leading_values);

}  // namespace raggedmla::test
