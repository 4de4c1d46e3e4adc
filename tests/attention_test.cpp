// Attention on every backend against reference: one line of the table is one case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "support/attention_case.hpp"

namespace raggedmla::test {

namespace {

using enum Store;
using enum List;

/// Lists (ranges) that share `overlap` of their rows with the query before.
SegmentCase shared(Store store, List list, std::int64_t length, std::int64_t rows, double overlap) {
  SegmentCase s{store, list, length, rows};
  s.overlap = overlap;
  return s;
}
/// The same within the last rows of a buffer, the only ones that are written.
SegmentCase at_the_end(SegmentCase s) {
  s.first_row = s.rows - 999;
  return s;
}
/// The same over pages (rows) that are many times as far from each other.
SegmentCase far(std::int64_t multiple, SegmentCase s) {
  s.page_multiple = multiple;
  return s;
}
/// Some rows that one query selects and its neighbours do not are NaN.
SegmentCase with_nan(SegmentCase s) {
  s.nan_rows = true;
  return s;
}
AttentionCase stated(double overlap, AttentionCase c) {
  c.stated_overlap = static_cast<float>(overlap);
  return c;
}

/// Output rows that start anywhere: not where the copy engine or stores of 16 bytes may.
AttentionCase odd_out(AttentionCase c) {
  c.out_pad = 1;
  return c;
}

/// Lists that share what they are said to, or a part that nobody stated: together the hints choose every Hopper kernel.
void add_overlaps(std::vector<AttentionCase>& t) {
  for (const int percent : {-1, 0, 50, 80, 95}) {
    const std::string name = "overlap_" + (percent < 0 ? "unknown" : std::to_string(percent)) + "_";
    const double real = percent < 0 ? 0.8 : percent / 100.0;
    t.push_back(stated(percent / 100.0, {name + "8", 13, 8, {shared(flat, ragged, 97, 2000, real)}, Sink::normal}));
    t.push_back(stated(percent / 100.0, {name + "16", 9, 16, {shared(flat, dense, 97, 2000, real)}, Sink::normal}));
    t.push_back(stated(percent / 100.0, {name + "32", 5, 32, {shared(bf16_pages, ragged, 97, 2000, real)}}));
  }
  const SegmentCase other = shared(bf16_pages, ragged, 64, 2000, 0.95);
  SegmentCase untidy = shared(flat, dense_lengths, 90, 2000, 0.8);
  untidy.wide = true;
  untidy.invalid = 0.1;
  t.push_back(stated(0.8, {"overlap_two", 13, 12, {untidy, other}, Sink::infinities, false, true, true}));
  const SegmentCase ring = shared(fp8_fnuz, range_ring, 64, 640, 0.95), fp8 = shared(fp8_ocp, dense, 130, 2500, 0.8);
  t.push_back(stated(0.8, {"overlap_fp8", 9, 16, {fp8, ring}, Sink::normal}));
  t.push_back(stated(0.8, {"overlap_fp8_heads", 3, 48, {fp8}, Sink::normal}));
  t.push_back(stated(17, {"overlap_absurd", 9, 16, {shared(flat, ragged, 97, 2000, 0.8)}}));
  t.push_back(stated(std::nan(""), {"overlap_nan", 9, 16, {shared(flat, ragged, 97, 2000, 0.8)}}));
}

void add_odd_outputs(std::vector<AttentionCase>& t) {
  const SegmentCase lists = shared(flat, ragged, 97, 2000, 0.8), ranges = shared(flat, range_flat, 100, 1000, 0.95);
  t.push_back(odd_out({"odd_out_lists", 9, 12, {lists}, Sink::normal, false, true}));
  t.push_back(odd_out({"odd_out_ranges", 9, 16, {ranges}, Sink::normal, false, true}));
  t.push_back(odd_out({"odd_out_f32", 9, 24, {lists, ranges}, Sink::none, true, true}));
}

/// A row of NaN that one query of a tile selects and its mates do not: theirs are exact, its own are NaN.
void add_nan_rows(std::vector<AttentionCase>& t) {
  for (const std::int64_t h : {8, 16, 32}) {
    const std::string heads = std::to_string(h);
    const SegmentCase window = with_nan(shared(flat, range_flat, 100, 1000, 0.95));
    t.push_back({"nan_lists_" + heads, 11, h, {with_nan(shared(flat, dense, 100, 2000, 0.8))}, Sink::normal});
    t.push_back({"nan_ranges_" + heads, 21, h, {window, shared(flat, range_flat, 20, 900, 0.5)}, Sink::infinities});
  }
  const SegmentCase table = with_nan(shared(bf16_pages, range_table, 100, 1280, 0.9));
  const SegmentCase pages = with_nan({bf16_pages, dense_lengths, 70, 640});
  t.push_back({"nan_pages", 21, 7, {table, pages}, Sink::none, false, true});
  t.push_back(stated(0, {"nan_disjoint", 11, 16, {with_nan(shared(bf16_pages, ragged, 65, 2000, 0))}}));
  const SegmentCase fp8 = with_nan(shared(fp8_ocp, ragged, 130, 2000, 0.5));
  t.push_back({"nan_fp8", 11, 16, {fp8, with_nan(shared(fp8_fnuz, range_table, 60, 1280, 0.9))}});
  t.push_back({"nan_fp8_heads", 4, 64, {fp8}, Sink::normal});
  t.push_back({"nan_splits", 5, 8, {fp8}, Sink::normal, true, false, false, 3});
  t.push_back({"nan_splits_fp8_heads", 3, 48, {with_nan({fp8_fnuz, dense, 300, 1500})}, {}, true, true, false, 3});
}

/// Row numbers and byte offsets: buffers of 1 MB, rows at the end of 1 GB, and rows and queries beyond 2^31 bytes. Only
/// what is selected is ever written.
void add_buffers(std::vector<AttentionCase>& t) {
  constexpr std::int64_t million = 1 << 20;
  const auto add = [&t](const std::string& name, std::int64_t heads, std::vector<SegmentCase> segments) {
    t.push_back({name, 13, heads, std::move(segments), Sink::normal});
  };
  add("megabyte", 16, {shared(flat, dense, 65, 1024, 0.5), shared(flat, range_flat, 65, 1024, 0.9)});
  for (const std::int64_t rows : {million, million + 64}) {  // merged lists know 2^20
    const SegmentCase lists = at_the_end(shared(flat, dense, 65, rows, 0.5));
    add("gigabyte_" + std::to_string(rows), 16, {lists});
    add("gigabyte_ranges_" + std::to_string(rows), 8, {at_the_end(shared(flat, range_flat, 65, rows, 0.9)), lists});
  }
  add("gigabyte_fp8", 12, {at_the_end(shared(fp8_ocp, ragged, 65, 2 * million, 0.5))});
  add("gigabyte_fp8_heads", 48, {at_the_end(shared(fp8_ocp, ragged, 65, 2 * million, 0.5))});
  add("far_rows", 16, {far(1 << 14, shared(flat, dense, 65, 200, 0.5))});  // 3.3 GB
  add("far_rows_of_ranges", 16, {far(1 << 14, shared(flat, range_flat, 65, 200, 0.9))});
  add("far_pages", 16, {far(2000, shared(bf16_pages, ragged, 65, 2560, 0.5))});  // 5.2 GB
  add("far_pages_of_ranges", 16, {far(2000, shared(bf16_pages, range_table, 65, 2560, 0.9))});
  add("far_fp8_pages", 40, {far(3000, shared(fp8_ocp, ragged, 65, 2560, 0.5))});  // 4.5 GB
  constexpr std::int64_t far_queries = 3 << 26;                                   // 4.8 GB from the first to the last
  for (const std::int64_t h : {8, 40}) {
    add("far_queries_" + std::to_string(h), h, {shared(flat, dense, 65, 640, 0.5), shared(fp8_ocp, ragged, 9, 64, 0)});
    t.back().query_stride = far_queries;
  }
  add("far_queries_bf16", 16, {shared(flat, dense, 65, 640, 0.5)});
  t.back().query_stride = far_queries;
  add("far_queries_fp8_heads", 48, {shared(fp8_ocp, dense, 65, 640, 0.5)});
  t.back().query_stride = far_queries;
}

/// Calls over fp8 pages, which the Hopper backend may unpack ahead: every kind of list and of trouble in it.
void add_unpacked(std::vector<AttentionCase>& t) {
  const std::vector<AttentionCase> more{
      // name, T, H, segments {store, list, K, rows, rows per page, wide, invalid}, sink, f32, rope, strided
      {"unpacked_tables", 41, 16, {{fp8_ocp, range_table, 130, 600}, {fp8_fnuz, range_table, 60, 90, 2}}, Sink::normal},
      {"unpacked_missing_pages", 45, 16, {{fp8_ocp, range_table, 200, 640, 16, false, 0.3}}, Sink::infinities},
      {"unpacked_missing_small_pages", 38, 8, {{fp8_fnuz, range_table, 90, 120, 2, true, 0.3}}},
      {"unpacked_no_page", 33, 16, {{fp8_ocp, range_table, 80, 200, 64, false, 1.0}}, Sink::normal},
      {"unpacked_odd_pages", 37, 12, {{fp8_ocp, range_table, 97, 200, 7, true, 0.1}}, Sink::normal},
      {"unpacked_ring", 40, 16, {{fp8_ocp, range_ring, 100, 700, 16, false, 0.1}, {fp8_ocp, range_table, 30, 90, 2}}},
      {"unpacked_flat_range",
       35,
       16,
       {{fp8_ocp, range_flat, 70, 300}, {fp8_fnuz, range_flat, 40, 200, 5}},
       Sink::normal},
      {"unpacked_lists",
       20,
       16,
       {{fp8_ocp, ragged, 90, 300, 64, true, 0.3}, {fp8_fnuz, dense_lengths, 70, 200, 7, false, 0.3}}},
      {"unpacked_mixed",
       37,
       16,
       {{flat, range_flat, 128, 600}, {fp8_ocp, range_table, 60, 90, 2, false, 0.2}},
       Sink::normal},
      {"unpacked_mixed_lists", 21, 8, {{bf16_pages, ragged, 65, 200}, {fp8_fnuz, dense, 33, 100}, {flat, dense, 9}}},
      {"unpacked_empty_source", 9, 16, {{fp8_ocp, dense, 0, 0}, {fp8_ocp, range_table, 60, 90}}, Sink::normal},
      {"unpacked_strided", 36, 16, {{fp8_ocp, range_table, 90, 300, 64, true, 0.2, 3}}, Sink::normal, true, true, true},
      // More than 32 heads fill a tile with few queries: enough of these that kernel `automatic` unpacks.
      {"unpacked_many",
       160,
       33,
       {{fp8_ocp, range_table, 40, 200, 16, false, 0.1}, {fp8_fnuz, ragged, 25, 100}},
       Sink::normal},
      // More than 64 heads: several calls of query tiles.
      {"unpacked_head_groups",
       9,
       96,
       {{flat, dense_lengths, 70}, {fp8_ocp, range_table, 60, 90}},
       Sink::normal,
       true,
       true,
       true},
  };
  t.insert(t.end(), more.begin(), more.end());
}

/// More tiles than multiprocessors, so that blocks go from one to the next. Some queries are compared.
void add_many_queries(std::vector<AttentionCase>& t) {
  const auto lists = [](std::int64_t length, double overlap, List list = dense) {
    return shared(flat, list, length, 1 << 15, overlap);
  };
  const auto window = [](std::int64_t length, Store store = flat, List list = range_flat) {
    return shared(store, list, length, 1 << 14, 1 - 1.0 / static_cast<double>(length));
  };
  t.push_back({"tokens_4097_lists", 4097, 1, {shared(flat, ragged, 33, 4096, 0.8)}, Sink::normal});
  t.push_back({"tokens_4097_ranges", 4097, 2, {shared(flat, range_flat, 17, 4096, 0.94)}});
  std::vector<AttentionCase> large{
      stated(0.8, {"large_lists_16", 4097, 16, {lists(1152, 0.8, ragged)}, Sink::normal}),
      stated(0.5, {"large_lists_8", 4097, 8, {lists(640, 0.5)}, Sink::normal}),
      stated(0.95, {"large_lists_48", 1025, 48, {lists(384, 0.95)}, Sink::normal}),
      {"large_lists_unknown", 4097, 12, {lists(640, 0.3)}, Sink::normal},
      {"large_lists_and_window", 4097, 8, {lists(640, 0.8), window(128)}, Sink::normal},
      stated(0, {"large_disjoint_16", 4097, 16, {lists(1153, 0, ragged)}, Sink::normal}),
      stated(0, {"large_disjoint_1", 4097, 1, {lists(384, 0)}, Sink::normal}),
      {"large_ranges_16", 4097, 16, {window(384)}, Sink::normal},
      {"large_ranges_7", 4097, 7, {window(8320), window(1153)}, Sink::normal},
      {"large_ranges_32", 1025, 32, {window(640, bf16_pages, range_table)}, Sink::normal},
      {"large_ranges_fp8", 1025, 24, {window(1152, fp8_ocp, range_table)}, Sink::normal},
      stated(0.9, {"large_rounds", 8300, 16, {lists(2100, 0.9)}, Sink::normal}),  // merged lists exceed 128 MiB
      stated(0.8, {"large_nan", 4097, 16, {with_nan(shared(flat, dense, 64, 1 << 16, 0.8))}}),
      {"large_nan_ranges", 4097, 16, {with_nan(window(128)), with_nan({flat, ragged, 64, 1 << 15})}},
      {"large_8320", 5, 16, {lists(8320, 0.3)}, Sink::normal},
      {"large_8320_fp8_heads", 3, 64, {shared(fp8_ocp, ragged, 8320, 1 << 15, 0.5)}, Sink::normal},
      {"large_fp8_heads", 513, 64, {shared(fp8_ocp, ragged, 640, 1 << 14, 0.5), window(128, fp8_ocp, range_ring)}},
  };
  for (AttentionCase& c : large) {
    c.gpu_only = true;
    t.push_back(std::move(c));
  }
}

const std::vector<AttentionCase>& cases() {
  static const std::vector<AttentionCase> table = [] {
    std::vector<AttentionCase> t{
        // name, T, H, segments {store, list, K, rows, rows per page, wide, invalid, page multiple}, sink, f32, rope,
        // strided
        {"one_row", 1, 1, {{flat, dense, 1, 4}}},
        {"flat_dense", 5, 16, {{flat, dense, 100}}},
        {"flat_dense_lengths", 12, 16, {{flat, dense_lengths, 70}}, Sink::normal},
        {"flat_ragged", 11, 8, {{flat, ragged, 90}}, Sink::normal},
        {"flat_ragged_wide", 6, 24, {{flat, ragged, 50, 300, 64, true}}},
        {"invalid_entries", 7, 16, {{flat, dense, 120, 200, 64, false, 0.4}}, Sink::infinities},
        {"invalid_ragged", 7, 3, {{flat, ragged, 120, 200, 64, true, 0.7}}, Sink::infinities},
        {"nothing_valid", 4, 16, {{flat, dense, 65, 200, 64, false, 1.0}}, Sink::normal},
        {"bf16_pages", 5, 16, {{bf16_pages, dense, 77, 300, 16}}},
        {"fp8_pages", 5, 16, {{fp8_ocp, dense, 130, 640}}, Sink::normal},
        {"fp8_fnuz_pages", 5, 16, {{fp8_fnuz, dense_lengths, 130, 640}}},
        {"two_row_pages", 6, 12, {{fp8_ocp, ragged, 97, 200, 2}}},
        {"odd_page_rows", 6, 12, {{fp8_ocp, dense, 97, 200, 7}}},
        {"slab", 4, 16, {{fp8_ocp, dense, 80, 320, 64, false, 0.1, 3}}},
        {"bf16_slab", 4, 16, {{bf16_pages, ragged, 80, 320, 8, false, 0.1, 3}}},
        {"decode_fnuz_and_ocp",
         9,
         64,
         {{fp8_fnuz, ragged, 128, 1024}, {fp8_ocp, dense_lengths, 200, 900}},
         Sink::normal},
        {"decode_range_window",
         9,
         16,
         {{fp8_ocp, range_ring, 128, 1024}, {fp8_ocp, range_table, 60, 90, 2}},
         Sink::normal},
        {"prefill_ranges", 37, 16, {{flat, range_flat, 128, 600}, {flat, range_flat, 40, 300}}, Sink::normal},
        {"range_tables", 23, 8, {{bf16_pages, range_table, 150, 640, 64, true, 0.2}}},
        {"range_fp8_tables", 23, 8, {{fp8_ocp, range_table, 150, 640, 64, false, 0.2}}},
        {"four_segments",
         5,
         20,
         {{flat, dense, 33}, {fp8_ocp, ragged, 64}, {bf16_pages, range_table, 65}, {fp8_fnuz, dense_lengths, 20}},
         Sink::normal},
        {"empty_in_the_middle", 5, 16, {{flat, dense, 33}, {fp8_ocp, dense, 0}, {flat, ragged, 20}}},
        {"f32_out", 4, 16, {{flat, dense, 64}}, Sink::normal, true},
        {"inverse_rope", 7, 16, {{fp8_ocp, dense, 64}}, Sink::normal, false, true},
        {"inverse_rope_f32", 7, 5, {{flat, ragged, 64}}, Sink::none, true, true},
        {"strided", 7, 16, {{flat, dense_lengths, 64}, {fp8_ocp, range_table, 40}}, Sink::normal, false, true, true},
        {"strided_f32", 7, 33, {{bf16_pages, ragged, 64}}, Sink::normal, true, false, true},
        {"pro_csa", 2, 128, {{fp8_ocp, ragged, 128, 1024}, {fp8_ocp, dense_lengths, 1024, 4096}}, Sink::normal},
        {"flash_csa", 3, 64, {{flat, dense, 640, 2048}}, Sink::normal},
        {"wide_lists_of_neighbours", 19, 8, {{flat, ragged, 300, 700, 64, true, 0.3}}, Sink::normal},
        {"long_lists_of_neighbours", 5, 16, {{flat, ragged, 3000, 4000}}, Sink::normal},
        {"long_range", 2, 16, {{fp8_ocp, range_table, 2100, 2200, 2}}, Sink::normal},
    };
    for (const std::int64_t k : {1, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 133, 384, 640, 1152, 1153}) {
      t.push_back({"length_" + std::to_string(k), 3, 16, {{flat, dense, k, 1500}}, Sink::normal});
      t.push_back({"length_fp8_" + std::to_string(k), 3, 8, {{fp8_ocp, ragged, k, 1500}}, Sink::normal});
      t.push_back({"length_range_" + std::to_string(k), 9, 16, {{flat, range_flat, k, 1500}}, Sink::normal});
    }
    for (const std::int64_t h :
         {1, 2, 7, 8, 9, 12, 15, 17, 24, 31, 32, 40, 47, 48, 49, 63, 65, 96, 127, 129, 130, 200}) {
      t.push_back(
          {"heads_" + std::to_string(h), 2, h, {{flat, dense, 37, 128}, {fp8_ocp, range_table, 9, 128}}, Sink::normal});
    }
    // Of bf16 rows alone, with tiles of several queries and a last one that is not full.
    for (const std::int64_t h : {1, 2, 7, 8, 12, 16, 24, 32, 48}) {
      t.push_back({"heads_bf16_" + std::to_string(h),
                   9,
                   h,
                   {shared(flat, ragged, 70, 512, 0.5), shared(flat, range_flat, 33, 512, 0.9)},
                   Sink::normal});
    }
    // More distinct rows than a merged list holds.
    t.push_back({"length_8320", 2, 2, {shared(flat, dense, 8320, 17000, 0)}, Sink::normal});
    t.push_back({"length_fp8_8320", 1, 3, {{fp8_ocp, ragged, 8320, 9000}}, Sink::normal});
    t.push_back({"length_range_8320", 2, 5, {{flat, range_flat, 8320, 9000}}, Sink::normal});
    // Rows that stand in a list a few times, and more often than a merged list counts.
    t.push_back({"duplicates", 9, 8, {{flat, dense, 300, 70}}, Sink::normal});
    t.push_back({"many_duplicates", 9, 16, {{flat, ragged, 300, 9}}, Sink::normal});
    add_overlaps(t);
    add_odd_outputs(t);
    add_nan_rows(t);
    add_buffers(t);
    add_many_queries(t);
    add_unpacked(t);
    // More than 32 heads over fp8 pages alone.
    t.push_back({"fp8_heads", 5, 48, {{fp8_ocp, ragged, 300, 900}, {fp8_fnuz, range_table, 60, 90, 2}}, Sink::normal});
    t.push_back({"fp8_heads_segments",
                 3,
                 64,
                 {{fp8_ocp, dense, 33}, {fp8_fnuz, ragged, 0}, {fp8_ocp, ragged, 70}, {fp8_fnuz, dense_lengths, 100}},
                 Sink::normal});
    t.push_back({"fp8_heads_invalid", 5, 64, {{fp8_ocp, dense, 250, 640, 64, false, 0.5}}, Sink::infinities});
    t.push_back({"fp8_heads_nothing_valid", 3, 64, {{fp8_ocp, dense, 65, 200, 64, false, 1.0}}, Sink::normal});
    t.push_back({"fp8_heads_rope", 5, 33, {{fp8_ocp, dense_lengths, 200, 700}}, Sink::normal, false, true});
    t.push_back({"fp8_heads_strided", 5, 65, {{fp8_ocp, ragged, 200, 700}}, Sink::normal, false, true, true});
    t.push_back({"fp8_heads_f32", 5, 130, {{fp8_ocp, ragged, 90, 700, 7}}, Sink::infinities, true, true});
    t.push_back({"fp8_heads_many", 150, 33, {{fp8_ocp, range_ring, 40, 1024}, {fp8_ocp, dense, 25}}, Sink::normal});
    for (const std::int64_t k : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 192, 193, 257, 640, 1153}) {
      t.push_back({"length_fp8_heads_" + std::to_string(k), 2, 64, {{fp8_ocp, ragged, k, 1500}}, Sink::normal});
    }
    for (const int splits : {1, 2, 3, 8, 32}) {
      t.push_back({"splits_fp8_heads_" + std::to_string(splits),
                   3,
                   96,
                   {{fp8_ocp, ragged, 700, 1500}, {fp8_fnuz, dense_lengths, 333}},
                   Sink::normal,
                   splits % 2 == 0,
                   true,
                   false,
                   splits});
    }
    for (const int splits : {1, 2, 3, 7, 8, 32}) {
      t.push_back({"splits_" + std::to_string(splits),
                   4,
                   16,
                   {{fp8_ocp, ragged, 700, 1500}, {flat, dense_lengths, 333}},
                   Sink::normal,
                   false,
                   true,
                   false,
                   splits});
    }
    for (const std::int64_t tokens : {1, 3, 64, 257}) {
      t.push_back({"tokens_" + std::to_string(tokens),
                   tokens,
                   4,
                   {{flat, ragged, 65, 700}, {flat, range_flat, 33, 400}},
                   Sink::normal});
    }
    return t;
  }();
  return table;
}

/// Which queries reference does: all of a few, of many the ends and some between.
std::vector<std::int64_t> queries_to_compare(std::int64_t tokens) {
  std::vector<std::int64_t> queries;
  const std::int64_t few = 300, end = 10, step = std::max<std::int64_t>(1, tokens / 43);
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (tokens <= few || t < end || t >= tokens - end || t % step == 0) queries.push_back(t);
  }
  return queries;
}

/// A case with its right answer. Backends come one after the other, so it is made once for all of them.
struct Prepared {
  explicit Prepared(std::size_t index_)
      : index(index_),
        data(cases()[index]),
        expected(reference_of(data.call, queries_to_compare(cases()[index].tokens))) {}
  std::size_t index;
  AttentionData data;
  Expected expected;
};
Prepared& prepared(std::size_t index) {
  static std::unique_ptr<Prepared> last;
  if (last == nullptr || last->index != index) {
    last.reset();
    last = std::make_unique<Prepared>(index);
  }
  last->data.forget_outputs();
  return *last;
}

std::int64_t nan_count(const Tensor& tensor) {
  std::int64_t count = 0;
  for (std::int64_t n = 0; n < tensor.size(); ++n) count += std::isnan(tensor.flat(n)) ? 1 : 0;
  return count;
}

class AttentionTable : public testing::TestWithParam<std::tuple<std::size_t, Backend>> {};

}  // namespace

TEST_P(AttentionTable, EqualsReference) {
  const auto& [index, backend] = GetParam();
  if (!present(backend)) GTEST_SKIP() << "no GPU";
  const AttentionCase& c = cases()[index];
  if (c.gpu_only && backend.device.type == DeviceType::cpu) GTEST_SKIP() << "only on GPUs: too slow on a CPU";
  auto& [_, data, expected] = prepared(index);
  if (std::ranges::any_of(c.segments, &SegmentCase::nan_rows)) {
    const std::int64_t nan = nan_count(expected.lse);
    ASSERT_TRUE(0 < nan && nan < expected.lse.size()) << "no row of NaN is selected by some queries only";
  }
  try {
    run_attention(data.call, backend);
  } catch (const Error& error) {
    if (is_refusal(backend, error)) GTEST_SKIP() << error.what();
    throw;
  }
  expect_close(data.call, expected, c.name);
  EXPECT_TRUE(data.out.padding_intact()) << "wrote between the rows of out";
  EXPECT_TRUE(data.lse.padding_intact()) << "wrote between the rows of lse";
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionTable,
                         testing::Combine(testing::Range<std::size_t>(0, cases().size()),
                                          testing::ValuesIn(attention_backends())),
                         [](const auto& test) {
                           return std::get<1>(test.param).name + "_" + cases()[std::get<0>(test.param)].name;
                         });

/// Optional outputs absent, no segments, no tokens, no heads.
class AttentionBackends : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!present(GetParam())) GTEST_SKIP() << "no GPU";
    if (GetParam().kernel == Schedule::Kernel::sm90) GTEST_SKIP() << "covered by automatic";
  }
};

TEST_P(AttentionBackends, OptionalOutputsMayBeAbsent) {
  AttentionData data({"", 3, 16, {{flat, dense, 40}}});
  const Expected expected = reference_of(data.call);
  data.call.lse.reset();
  data.call.max_logits.reset();
  run_attention(data.call, GetParam());
  expect_close(data.call, expected, "no lse");
}

TEST_P(AttentionBackends, NoTokensAndNoHeadsSucceed) {
  AttentionData no_tokens({"", 0, 16, {{flat, dense, 40}}});
  EXPECT_NO_THROW(run_attention(no_tokens.call, GetParam()));
  AttentionData no_heads({"", 2, 0, {{flat, dense, 40}}});
  for (const float hint : {-1.0f, 0.0f, 0.8f}) {  // chooses the kernel, before anybody looks at the heads
    no_heads.call.schedule.expected_overlap = hint;
    EXPECT_NO_THROW(run_attention(no_heads.call, GetParam()));
  }
}

TEST_P(AttentionBackends, EqualBitsFromRunToRun) {
  AttentionData data({"", 9, 16, {{fp8_ocp, ragged, 700, 1500}, {flat, range_flat, 333, 900}}, Sink::normal});
  run_attention(data.call, GetParam());
  std::vector<double> first;
  for (std::int64_t n = 0; n < data.out.size(); ++n) first.push_back(data.out.flat(n));
  run_attention(data.call, GetParam());
  for (std::int64_t n = 0; n < data.out.size(); ++n) ASSERT_EQ(first[static_cast<std::size_t>(n)], data.out.flat(n));
}

INSTANTIATE_TEST_SUITE_P(, AttentionBackends, testing::ValuesIn(attention_backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace raggedmla::test
