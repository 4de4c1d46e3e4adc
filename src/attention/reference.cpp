// Attention by its definition, in double precision. Every test compares with this; it is written to be read.
#include <cmath>
#include <limits>
#include <vector>

#include "attention/backends.hpp"
#include "base/bfloat16.hpp"
#include "kv_cache/row_channel.hpp"

namespace raggedmla::reference {

namespace {

constexpr int width = v4_row.query_width;
constexpr int value_width = v4_row.value_width;
constexpr double infinity = std::numeric_limits<double>::infinity();

struct SelectedRow {
  const RowStore* store;
  std::int64_t slot;
};

std::vector<SelectedRow> selected_rows(const AttentionProblem& problem, std::int64_t t) {
  std::vector<SelectedRow> rows;
  for (int s = 0; s < problem.segment_count; ++s) {
    const auto& [store, list] = problem.segments[s];
    const RowSpan span = list.span(t, store.rows);
    for (std::int64_t j = 0; j < span.length; ++j) {
      const std::int64_t slot = list.slot(span, j, store);
      if (slot >= 0) rows.push_back({&store, slot});
    }
  }
  return rows;
}

/// Turns the last channels back by the query's position.
void inverse_rope(const AttentionProblem& problem, std::int64_t t, double* out) {
  if (problem.cos_sin == nullptr) return;
  const std::int64_t position = problem.positions(t);
  if (position < 0 || position >= problem.cos_sin_rows) return;
  const float* cosines = problem.cos_sin + position * problem.cos_sin_stride;
  const float* sines = cosines + v4_row.rope_width / 2;
  double* pairs = out + value_width - v4_row.rope_width;
  for (int i = 0; i < v4_row.rope_width / 2; ++i) {
    const double even = pairs[2 * i], odd = pairs[2 * i + 1];
    pairs[2 * i] = even * cosines[i] + odd * sines[i];
    pairs[2 * i + 1] = odd * cosines[i] - even * sines[i];
  }
}

void store_channel(void* out, bool is_f32, std::int64_t offset, double value) {
  if (is_f32) {
    static_cast<float*>(out)[offset] = static_cast<float>(value);
  } else {
    static_cast<std::uint16_t*>(out)[offset] = bf16_from_float(static_cast<float>(value));
  }
}

/// exp(sink - m), the sink's share of the denominator; `m` is finite.
double sink_weight(const float* sink, std::int64_t stride, std::int64_t h, double m) {
  return sink == nullptr ? 0.0 : std::exp(sink[h * stride] - m);
}

/// The largest of both; NaN wins.
double larger(double a, double b) { return a > b || a != a ? a : b; }

void attend(const AttentionProblem& problem, std::int64_t t) {
  const std::vector<SelectedRow> rows = selected_rows(problem, t);
  const std::size_t heads = static_cast<std::size_t>(problem.heads), row_count = rows.size();
  std::vector<double> z(heads * row_count), out(heads * value_width), m(heads, -infinity), sum(heads);
  std::vector<double> row(width);

  const auto read = [&](const SelectedRow& source) {
    for (int c = 0; c < width; ++c) row[static_cast<std::size_t>(c)] = row_channel(*source.store, source.slot, c);
  };

  for (std::size_t i = 0; i < row_count; ++i) {
    read(rows[i]);
    for (std::size_t h = 0; h < heads; ++h) {
      const std::uint16_t* q = problem.q + t * problem.q_stride_token + std::int64_t(h) * problem.q_stride_head;
      double dot = 0;
      for (std::size_t c = 0; c < width; ++c) dot += float_from_bf16(q[c]) * row[c];
      z[h * row_count + i] = problem.scale * dot;
      m[h] = larger(m[h], z[h * row_count + i]);
    }
  }
  for (std::size_t i = 0; i < row_count; ++i) {
    read(rows[i]);
    for (std::size_t h = 0; h < heads; ++h) {
      const double weight = m[h] == -infinity ? 0.0 : std::exp(z[h * row_count + i] - m[h]);
      sum[h] += weight;
      for (std::size_t c = 0; c < value_width; ++c) out[h * value_width + c] += weight * row[c];
    }
  }

  for (std::int64_t h = 0; h < problem.heads; ++h) {
    const std::size_t n = static_cast<std::size_t>(h);
    const bool empty = m[n] == -infinity;
    const double denominator = sum[n] + sink_weight(problem.sink, problem.sink_stride, h, m[n]);
    double* out_row = out.data() + n * value_width;
    for (int c = 0; c < value_width; ++c) out_row[c] = empty ? 0.0 : out_row[c] / denominator;
    inverse_rope(problem, t, out_row);
    const std::int64_t offset = t * problem.out_stride_token + h * problem.out_stride_head;
    for (int c = 0; c < value_width; ++c) store_channel(problem.out, problem.out_is_f32, offset + c, out_row[c]);
    if (problem.lse) {
      problem.lse[t * problem.lse_stride_token + h * problem.lse_stride_head] =
          static_cast<float>(empty ? -infinity : m[n] + std::log(sum[n]));
    }
    if (problem.max_logits) {
      problem.max_logits[t * problem.max_logits_stride_token + h * problem.max_logits_stride_head] =
          static_cast<float>(m[n]);
    }
  }
}

void merge(const MergeProblem& problem, std::int64_t t, std::int64_t h) {
  const auto part_lse = [&](std::int64_t s) -> double {
    return problem.partial_lse[s * problem.partial_lse_stride_part + t * problem.partial_lse_stride_token +
                               h * problem.partial_lse_stride_head];
  };
  const auto part_out = [&](std::int64_t s, int c) -> double {
    const std::int64_t offset =
        s * problem.partial_stride_part + t * problem.partial_stride_token + h * problem.partial_stride_head + c;
    return problem.partial_is_f32 ? static_cast<const float*>(problem.partial_out)[offset]
                                  : float_from_bf16(static_cast<const std::uint16_t*>(problem.partial_out)[offset]);
  };

  double m = -infinity, sum = 0;
  std::vector<double> out(value_width);
  for (std::int64_t s = 0; s < problem.parts; ++s) m = larger(m, part_lse(s));
  for (std::int64_t s = 0; s < problem.parts; ++s) {
    if (part_lse(s) == -infinity) continue;  // an empty part's out may hold anything
    const double weight = std::exp(part_lse(s) - m);
    sum += weight;
    for (int c = 0; c < value_width; ++c) out[static_cast<std::size_t>(c)] += weight * part_out(s, c);
  }

  const bool empty = m == -infinity;
  const double denominator = sum + sink_weight(problem.sink, problem.sink_stride, h, m);
  const std::int64_t offset = t * problem.out_stride_token + h * problem.out_stride_head;
  for (int c = 0; c < value_width; ++c) {
    const double value = empty ? 0.0 : out[static_cast<std::size_t>(c)] / denominator;
    store_channel(problem.out, problem.out_is_f32, offset + c, value);
  }
  if (problem.lse) {
    problem.lse[t * problem.lse_stride_token + h * problem.lse_stride_head] =
        static_cast<float>(empty ? -infinity : m + std::log(sum));
  }
}

}  // namespace

void attention(const AttentionProblem& problem) {
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t t = 0; t < problem.tokens; ++t) attend(problem, t);
}

void merge_states(const MergeProblem& problem) {
#pragma omp parallel for collapse(2)
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    for (std::int64_t h = 0; h < problem.heads; ++h) merge(problem, t, h);
  }
}

}  // namespace raggedmla::reference
