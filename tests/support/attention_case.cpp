#include "support/attention_case.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "base/bfloat16.hpp"
#include "support/query_subset.hpp"

namespace raggedmla::test {

namespace {

constexpr std::int64_t width = v4_row.query_width;

DataType index_type(bool wide) { return wide ? DataType::i64 : DataType::i32; }

/// Random bytes for one fp8 row: codes without NaN unless it is asked for, small scales, bf16 rope channels.
void write_fp8_row(std::uint8_t* data, std::uint8_t* scales, Fp8Encoding encoding, bool with_nan, Random& random) {
  for (int i = 0; i < v4_row.nope_width; ++i) {
    std::uint8_t code;
    do code = static_cast<std::uint8_t>(random.bits() & 0xFF);
    while (encoding == Fp8Encoding::ocp ? (code & 0x7F) == 0x7F : code == 0x80);
    data[i] = with_nan && i % 50 == 7 ? (encoding == Fp8Encoding::ocp ? 0x7F : 0x80) : code;
  }
  for (int i = 0; i < v4_row.rope_width; ++i) {
    const std::uint16_t bits = bf16_from_float(static_cast<float>(random.normal()));
    std::memcpy(data + v4_row.nope_width + 2 * i, &bits, 2);
  }
  for (int i = 0; i < v4_row.nope_width / v4_row.group_width; ++i) {
    scales[i] = static_cast<std::uint8_t>(random.integer(118, 121));
  }
}

/// Splits T queries into a few requests of uneven length, the first of them empty, then short and long ones in turn;
/// the same for every seed.
std::vector<std::int64_t> request_starts(std::int64_t tokens) {
  Random random(static_cast<std::uint64_t>(tokens));
  std::vector<std::int64_t> starts{0, 0};
  while (starts.back() < tokens) {
    const std::int64_t longest = starts.size() % 2 == 0 ? 3 : std::max<std::int64_t>(1, tokens / 2);
    starts.push_back(std::min(tokens, starts.back() + random.integer(1, longest)));
  }
  return starts;
}

/// Rows for one list after the other, by SegmentCase::overlap.
class RowChooser {
 public:
  RowChooser(const SegmentCase& s, std::int64_t rows, Random& random)
      : first_(s.first_row), span_(rows - s.first_row), random_(random) {
    if (s.overlap < 0) return;
    kept_ = static_cast<std::size_t>(std::lround(s.overlap * static_cast<double>(s.length)));
    rows_.resize(static_cast<std::size_t>(s.length));
    step_ = span_ * 5 / 8 + 1;  // far from the row before, and every row once before any comes again
    while (std::gcd(step_, span_) != 1) ++step_;
  }
  /// Of the next query; the first ones of requests share nothing with the query before.
  void next_query(bool starts_request) {
    for (std::size_t i = starts_request ? 0 : kept_; i < rows_.size(); ++i) {
      position_ = (position_ + step_) % span_;
      rows_[i] = first_ + position_;
    }
    for (std::size_t i = rows_.size(); i > 1; --i) {
      std::swap(rows_[i - 1], rows_[static_cast<std::size_t>(random_.integer(0, static_cast<std::int64_t>(i) - 1))]);
    }
  }
  std::int64_t row(std::int64_t j) {
    return rows_.empty() ? random_.integer(first_, first_ + span_ - 1) : rows_[static_cast<std::size_t>(j)];
  }

 private:
  std::int64_t first_, span_, step_ = 0, position_ = 0;
  std::size_t kept_ = 0;
  std::vector<std::int64_t> rows_;  // of the present query, in random order
  Random& random_;
};

}  // namespace

/// Which rows of a source are selected, and by whom.
class Selected {
 public:
  Selected(std::int64_t first_row, std::int64_t rows)
      : first_(first_row), owners_(static_cast<std::size_t>(rows - first_row), nobody) {}
  void add(std::int64_t t, std::int64_t slot) {
    std::int32_t& owner = owners_[static_cast<std::size_t>(slot - first_)];
    const auto query = static_cast<std::int32_t>(t);
    owner = owner == nobody || owner == query ? query : several;
  }
  std::int64_t rows() const { return first_ + static_cast<std::int64_t>(owners_.size()); }
  bool has(std::int64_t slot) const { return owners_[static_cast<std::size_t>(slot - first_)] != nobody; }
  /// The first row of every second query that no other query selects, if there is one.
  std::vector<bool> nan_rows(std::int64_t queries) const {
    std::vector<bool> nan(owners_.size()), served(static_cast<std::size_t>(queries));
    for (std::size_t i = 0; i < owners_.size(); ++i) {
      if (owners_[i] < 0 || owners_[i] % 2 == 0) continue;
      const auto query = static_cast<std::size_t>(owners_[i]);
      nan[i] = !served[query];
      served[query] = true;
    }
    return nan;
  }

 private:
  static constexpr std::int32_t nobody = -1, several = -2;
  std::int64_t first_;
  std::vector<std::int32_t> owners_;
};

Tensor& AttentionData::keep(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  return tensors_.back();
}

void AttentionData::take_values(const AttentionData& other) {
  const auto take = [](Tensor& target, const Tensor& source) {
    for (std::int64_t n = 0; n < target.size(); ++n) target.set_flat(n, source.flat(n));
  };
  take(q, other.q);
  if (call.sink) take(sink, other.sink);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].size() != other.tensors_[i].size()) throw std::logic_error("calls differ in shape");
    take(tensors_[i], other.tensors_[i]);
  }
}

void AttentionData::forget_outputs() {
  out.fill(std::nan(""));
  lse.fill(std::nan(""));
  max_logits.fill(std::nan(""));
}

AttentionData::AttentionData(const AttentionCase& c) : random(c.seed * 7919 + 17) {
  const std::int64_t T = c.tokens, H = c.heads;
  const std::int64_t pad = c.strided ? 8 : 0;
  const std::int64_t query_stride = c.query_stride > 0 ? c.query_stride : H * (width + pad) + pad;
  q = Tensor(DataType::bf16, {T, H, width}, {query_stride, width + pad, 1});
  q.fill_normal(random);
  const std::int64_t out_pitch = width + (c.out_pad > 0 ? c.out_pad : pad);
  out = Tensor(c.f32_out ? DataType::f32 : DataType::bf16, {T, H, width},
               {c.out_pad > 0 ? H * out_pitch : query_stride, out_pitch, 1});
  lse = Tensor(DataType::f32, {T, H}, {H + pad, 1});
  max_logits =
      Tensor(DataType::f32, {T, H}, c.strided ? std::vector<std::int64_t>{1, T + 3} : std::vector<std::int64_t>{H, 1});
  forget_outputs();

  call.q = q;
  call.out = out;
  call.lse = lse;
  call.max_logits = max_logits;
  call.schedule.splits = c.splits;
  call.schedule.expected_overlap = c.stated_overlap;
  if (c.sink != Sink::none) {
    sink = Tensor(DataType::f32, {H}, {c.strided ? 2 : 1});
    sink.fill_normal(random);
    if (c.sink == Sink::infinities) {
      for (std::int64_t h = 0; h < H; h += 3)
        sink.set({h}, (h / 3 % 2 ? 1 : -1) * std::numeric_limits<double>::infinity());
    }
    call.sink = sink;
  }
  if (c.rope) {
    cos_sin = Tensor(DataType::f32, {97, 64}, {c.strided ? 70 : 64, 1});
    for (std::int64_t p = 0; p < 97; ++p) {
      for (std::int64_t i = 0; i < 32; ++i) {
        const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / 32);
        cos_sin.set({p, i}, std::cos(angle));
        cos_sin.set({p, 32 + i}, std::sin(angle));
      }
    }
    positions = Tensor(DataType::i64, {T});
    for (std::int64_t t = 0; t < T; ++t) positions.set({t}, t == 1 ? -5 : (t == 2 ? 97 : t * 5 % 97));
    call.epilogue = {Epilogue::Kind::inverse_rope, cos_sin, positions};
  }
  for (const SegmentCase& segment : c.segments) add_segment(segment, c);
  call.segments = segments;
}

void AttentionData::add_segment(const SegmentCase& s, const AttentionCase& whole) {
  const bool paged = s.store != Store::flat;
  const std::int64_t R = paged ? s.rows_per_page : 1, pages = (s.rows + R - 1) / R, rows = pages * R;
  Selected selected(s.first_row, rows);
  const bool ranges = s.list != List::dense && s.list != List::dense_lengths && s.list != List::ragged;
  const RowSelection selection = ranges ? make_range(s, whole, selected) : make_list(s, whole, selected);
  const std::vector<bool> nan =
      s.nan_rows ? selected.nan_rows(whole.tokens) : std::vector<bool>(static_cast<std::size_t>(rows - s.first_row));
  const auto is_nan = [&](std::int64_t slot) { return nan[static_cast<std::size_t>(slot - s.first_row)]; };

  KvSource source;
  if (s.store == Store::flat || s.store == Store::bf16_pages) {
    const std::int64_t pitch = width + (whole.strided ? 16 : 0);
    Tensor& tensor = paged ? keep(Tensor(DataType::bf16, {pages, R, width}, {s.page_multiple * R * pitch, pitch, 1}))
                           : keep(Tensor(DataType::bf16, {rows, width}, {s.page_multiple * pitch, 1}));
    for (std::int64_t slot = s.first_row; slot < rows; ++slot) {
      const bool used = selected.has(slot);
      for (std::int64_t i = 0; i < width; ++i) {
        tensor.set_flat(slot * width + i, !used || (is_nan(slot) && i % 3 == 0) ? std::nan("") : random.normal());
      }
    }
    if (paged) {
      source = PagedKv{tensor, s.rows_per_page, Fp8Encoding::ocp};
    } else {
      source = DenseKv{tensor};
    }
  } else {
    const Fp8Encoding encoding = s.store == Store::fp8_ocp ? Fp8Encoding::ocp : Fp8Encoding::fnuz;
    const std::int64_t payload = (R * (v4_row.data_bytes + v4_row.scale_bytes) + 575) / 576 * 576;
    Tensor& tensor = keep(Tensor(DataType::u8, {pages, payload}, {payload * s.page_multiple, 1}));
    auto* bytes = static_cast<std::uint8_t*>(tensor.view().data);
    for (std::int64_t p = s.first_row / R; p < pages; ++p) {
      std::uint8_t* page = bytes + p * payload * s.page_multiple;
      std::memset(page, 0xFF, static_cast<std::size_t>(payload));  // scale bytes 255 = NaN, rope NaN
      for (std::int64_t r = 0; r < R; ++r) {
        const std::int64_t slot = p * R + r;
        std::uint8_t* row = page + r * v4_row.data_bytes;
        if (slot >= s.first_row && selected.has(slot)) {
          write_fp8_row(row, page + R * v4_row.data_bytes + r * v4_row.scale_bytes, encoding, is_nan(slot), random);
        } else if (encoding == Fp8Encoding::fnuz) {
          std::memset(row, 0x80, static_cast<std::size_t>(v4_row.nope_width));
        }
      }
    }
    source = PagedKv{tensor, s.rows_per_page, encoding};
  }
  segments.push_back({source, selection});
}

RowSelection AttentionData::make_list(const SegmentCase& s, const AttentionCase& whole, Selected& selected) {
  const std::int64_t T = whole.tokens, K = s.length, rows = selected.rows();
  const std::vector<std::int64_t> starts = request_starts(T);
  RowChooser chooser(s, rows, random);
  const auto start_query = [&](std::int64_t t) {
    chooser.next_query(std::find(starts.begin(), starts.end(), t) != starts.end());
  };
  const auto pick = [&](std::int64_t t, std::int64_t j) -> std::int64_t {
    if (random.uniform() < s.invalid) {
      const std::int64_t bad[] = {-1, -7, rows, rows + 12345, std::numeric_limits<std::int32_t>::max()};
      return bad[random.integer(0, 4)];
    }
    const std::int64_t slot = chooser.row(j);
    selected.add(t, slot);
    return slot;
  };
  const auto length_of = [&](std::int64_t t) {
    if (s.overlap >= 0) return t % 11 == 7 ? std::int64_t{0} : (t % 11 == 5 ? random.integer(0, K) : K);
    return t % 5 == 4 ? std::int64_t{0} : (t % 2 ? random.integer(0, K) : K);
  };

  if (s.list == List::ragged) {
    Tensor& indptr = keep(Tensor(index_type(s.wide), {T + 1}));
    std::vector<std::int64_t> flat;
    for (std::int64_t t = 0; t <= T; ++t) {
      indptr.set({t}, static_cast<double>(flat.size()));
      if (t == T) break;
      start_query(t);
      const std::int64_t length = length_of(t);
      for (std::int64_t j = 0; j < length; ++j) flat.push_back(pick(t, j));
    }
    Tensor& indices = keep(Tensor(index_type(s.wide), {T * K + 1}, {whole.strided ? 2 : 1}));
    for (std::int64_t n = 0; n < indices.size(); ++n) {
      indices.set({n}, static_cast<double>(
                           n < static_cast<std::int64_t>(flat.size()) ? flat[static_cast<std::size_t>(n)] : n % rows));
    }
    return RaggedRows{indices, indptr};
  }
  Tensor& indices = keep(Tensor(index_type(s.wide), {T, K}, {K + (whole.strided ? 5 : 0), 1}));
  Tensor* lengths = nullptr;
  if (s.list == List::dense_lengths) {
    lengths = &keep(Tensor(index_type(s.wide), {T}, {whole.strided ? 3 : 1}));
    for (std::int64_t t = 0; t < T; ++t)
      lengths->set({t}, static_cast<double>(t % 7 == 3 ? -2 : (t % 7 == 5 ? K + 9 : length_of(t))));
  }
  for (std::int64_t t = 0; t < T; ++t) {
    start_query(t);
    const std::int64_t used =
        lengths ? std::clamp<std::int64_t>(static_cast<std::int64_t>(lengths->get({t})), 0, K) : K;
    for (std::int64_t j = 0; j < K; ++j) {
      // Behind the length stands a legal row number whose row is NaN unless somebody else selected it.
      indices.set({t, j}, static_cast<double>(j < used ? pick(t, j) : (t + j) % rows));
    }
  }
  return DenseRows{indices, lengths ? OptionalTensor(lengths->view()) : std::nullopt};
}

RowSelection AttentionData::make_range(const SegmentCase& s, const AttentionCase& whole, Selected& selected) {
  const std::int64_t T = whole.tokens, K = s.length, rows = selected.rows();
  const std::int64_t R = s.store == Store::flat ? 1 : s.rows_per_page, pages = rows / R;
  const std::vector<std::int64_t> starts = request_starts(T);
  const std::int64_t B = static_cast<std::int64_t>(starts.size()) - 1;
  std::int64_t longest = 0;
  for (std::size_t b = 0; b + 1 < starts.size(); ++b) longest = std::max(longest, starts[b + 1] - starts[b]);
  // Windows that slide, or ranges that start within the first page.
  const std::int64_t step = std::lround((1 - s.overlap) * static_cast<double>(K));
  const std::int64_t reach = s.overlap < 0 ? K : K + step * longest;

  RangeRows range;
  Tensor& query_start = keep(Tensor(DataType::i32, {B + 1}));
  for (std::int64_t b = 0; b <= B; ++b) query_start.set({b}, static_cast<double>(starts[static_cast<std::size_t>(b)]));
  Tensor& first = keep(Tensor(index_type(s.wide), {T}));
  Tensor& count = keep(Tensor(DataType::i32, {T}));
  if (s.list == List::range_ring) range.ring_rows = std::max<std::int64_t>(1, (K + R - 1) / R * R);
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t start = starts[static_cast<std::size_t>(b)], end = starts[static_cast<std::size_t>(b) + 1];
    for (std::int64_t t = start; t < end; ++t) {
      if (s.overlap >= 0) {
        first.set({t}, static_cast<double>(step * (t - start) - (b % 2 ? K / 2 : 0)));
        count.set({t}, static_cast<double>(t % 16 == 13 ? 0 : K));
      } else {
        first.set({t}, static_cast<double>(t % 6 == 5 ? -3 : random.integer(0, range.ring_rows > 0 ? 1000 : R)));
        count.set({t}, static_cast<double>(t % 8 == 7 ? -1 : (t % 2 ? random.integer(0, K) : K)));
      }
    }
  }
  range.first = first;
  range.count = count;
  range.query_start = query_start;
  const std::int64_t columns = s.list == List::range_flat ? 0 : (reach + 2 * R - 1) / R + 1;
  if (s.list == List::range_flat) {
    Tensor& base = keep(Tensor(DataType::i64, {B}));
    for (std::int64_t b = 0; b < B; ++b) {
      base.set({b}, static_cast<double>(random.integer(s.first_row, std::max(s.first_row, rows - reach))));
    }
    range.row_base = base;
  } else {
    Tensor& table = keep(Tensor(index_type(s.wide), {B, columns}, {columns + (whole.strided ? 3 : 0), 1}));
    for (std::int64_t b = 0; b < B; ++b) {
      for (std::int64_t p = 0; p < columns; ++p) {
        const bool bad = random.uniform() < s.invalid;
        table.set({b, p}, static_cast<double>(bad ? -1 : random.integer((s.first_row + R - 1) / R, pages - 1)));
      }
    }
    range.block_table = table;
  }

  // Which rows the ranges select, by the definition of RangeRows.
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t t = starts[static_cast<std::size_t>(b)]; t < starts[static_cast<std::size_t>(b) + 1]; ++t) {
      std::int64_t n = std::max<std::int64_t>(0, static_cast<std::int64_t>(count.get({t})));
      if (range.ring_rows > 0) n = std::min(n, range.ring_rows);
      for (std::int64_t i = 0; i < n; ++i) {
        std::int64_t r = static_cast<std::int64_t>(first.get({t})) + i;
        if (r < 0) continue;
        if (range.ring_rows > 0) r %= range.ring_rows;
        std::int64_t slot = -1;
        if (range.row_base) {
          slot = static_cast<const std::int64_t*>(range.row_base->data)[b] + r;
        } else if (r / R < columns) {
          const TensorView& table = *range.block_table;
          const std::int64_t at = b * table.stride[0] + r / R;
          const std::int64_t page = s.wide ? static_cast<const std::int64_t*>(table.data)[at]
                                           : static_cast<const std::int32_t*>(table.data)[at];
          slot = page < 0 ? -1 : page * R + r % R;
        }
        if (slot >= 0 && slot < rows) selected.add(t, slot);
      }
    }
  }
  return range;
}

Expected reference_of(const Attention& call) {
  const std::int64_t T = call.q.shape[0], H = call.q.shape[1];
  Expected expected{
      Tensor(DataType::f32, {T, H, width}), Tensor(DataType::f32, {T, H}), Tensor(DataType::f32, {T, H}), {}};
  Attention exact = call;
  exact.out = expected.out;
  exact.lse = expected.lse;
  exact.max_logits = expected.max_logits;
  exact.schedule = {};
  exact.schedule.kernel = Schedule::Kernel::reference;
  attention(exact);
  expected.queries.resize(static_cast<std::size_t>(T));
  std::iota(expected.queries.begin(), expected.queries.end(), std::int64_t{0});
  return expected;
}

Expected reference_of(const Attention& call, const std::vector<std::int64_t>& queries) {
  Expected expected = reference_of(QuerySubset(call, queries).call);
  expected.queries = queries;
  return expected;
}

namespace {

double read(const TensorView& view, std::int64_t offset) {
  return view.dtype == DataType::f32 ? static_cast<const float*>(view.data)[offset]
                                     : float_from_bf16(static_cast<const std::uint16_t*>(view.data)[offset]);
}

void expect_scalars_close(const TensorView& actual, const Tensor& expected, const std::vector<std::int64_t>& queries,
                          const char* name, const std::string& what) {
  for (std::int64_t n = 0; n < expected.view().shape[0]; ++n) {
    const std::int64_t t = queries[static_cast<std::size_t>(n)];
    for (std::int64_t h = 0; h < actual.shape[1]; ++h) {
      const double got = read(actual, t * actual.stride[0] + h * actual.stride[1]), want = expected.get({n, h});
      const bool equal = got == want || std::abs(got - want) <= 1e-3 * std::max(1.0, std::abs(want) / 64) ||
                         (std::isnan(got) && std::isnan(want));
      ASSERT_TRUE(equal) << what << ": " << name << "[" << t << ", " << h << "] = " << got << ", expected " << want;
    }
  }
}

}  // namespace

void expect_close(const Attention& actual, const Expected& expected, const std::string& what) {
  const TensorView& out = actual.out;
  double error_sum = 0, norm_sum = 0;
  for (std::int64_t n = 0; n < expected.out.view().shape[0]; ++n) {
    const std::int64_t t = expected.queries[static_cast<std::size_t>(n)];
    for (std::int64_t h = 0; h < out.shape[1]; ++h) {
      double error = 0, norm = 0;
      for (std::int64_t i = 0; i < out.shape[2]; ++i) {
        const double got = read(out, t * out.stride[0] + h * out.stride[1] + i), want = expected.out.get({n, h, i});
        ASSERT_EQ(std::isnan(got), std::isnan(want))
            << what << ": out[" << t << ", " << h << ", " << i << "] = " << got << ", expected " << want;
        if (std::isnan(want)) continue;
        error += (got - want) * (got - want);
        norm += want * want;
      }
      ASSERT_LE(std::sqrt(error), 1e-2 * std::sqrt(norm)) << what << ": out[" << t << ", " << h << "]";
      error_sum += error;
      norm_sum += norm;
    }
  }
  EXPECT_LE(std::sqrt(error_sum), 4e-3 * std::sqrt(norm_sum)) << what;
  if (actual.lse) expect_scalars_close(*actual.lse, expected.lse, expected.queries, "lse", what);
  if (actual.max_logits)
    expect_scalars_close(*actual.max_logits, expected.max_logits, expected.queries, "max_logits", what);
}

Tensor rows_of(const std::vector<std::vector<double>>& leading) {
  Tensor rows(DataType::bf16, {static_cast<std::int64_t>(leading.size()), width});
  rows.fill(0);
  for (std::size_t r = 0; r < leading.size(); ++r) {
    for (std::size_t i = 0; i < leading[r].size(); ++i) {
      rows.set({static_cast<std::int64_t>(r), static_cast<std::int64_t>(i)}, leading[r][i]);
    }
  }
  return rows;
}

}  // namespace raggedmla::test
