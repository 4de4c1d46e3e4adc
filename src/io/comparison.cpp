#include "io/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/bfloat16.hpp"

namespace raggedmla::io {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double element(const TensorView& view, std::int64_t offset) {
  return view.dtype == DataType::f32 ? static_cast<const float*>(view.data)[offset]
                                     : float_from_bf16(static_cast<const std::uint16_t*>(view.data)[offset]);
}

/// sqrt(difference / expected) of sums of squares; NaN anywhere counts as infinitely far.
double relative(double difference, double expected) {
  if (difference == 0) return 0;
  const double ratio = std::sqrt(difference / expected);
  return std::isnan(ratio) ? infinity : ratio;
}

/// Equal infinities and two NaN differ by nothing: a selected row may hold them.
double difference_of(double actual, double expected) {
  return actual == expected || (std::isnan(actual) && std::isnan(expected)) ? 0 : actual - expected;
}

double distance(double actual, double expected) {
  const double difference = std::abs(difference_of(actual, expected));
  return std::isnan(difference) ? infinity : difference;
}

double worst_logarithm(const TensorView& actual, const TensorView& expected) {
  double worst = 0;
  for (std::int64_t t = 0; t < expected.shape[0]; ++t) {
    for (std::int64_t h = 0; h < expected.shape[1]; ++h) {
      double want = element(expected, t * expected.stride[0] + h * expected.stride[1]);
      if (want == infinity) want = -infinity;
      worst = std::max(worst, distance(element(actual, t * actual.stride[0] + h * actual.stride[1]), want));
    }
  }
  return worst;
}

}  // namespace

void Comparison::add_out(const TensorView& actual, const TensorView& expected, std::int64_t first_token) {
  for (std::int64_t t = 0; t < expected.shape[0]; ++t) {
    for (std::int64_t h = 0; h < expected.shape[1]; ++h) {
      double difference = 0, norm = 0;
      const std::int64_t actual_row = t * actual.stride[0] + h * actual.stride[1];
      const std::int64_t expected_row = t * expected.stride[0] + h * expected.stride[1];
      for (std::int64_t d = 0; d < expected.shape[2]; ++d) {
        const double want = element(expected, expected_row + d * expected.stride[2]);
        const double off = difference_of(element(actual, actual_row + d * actual.stride[2]), want);
        difference += off * off;
        if (std::isfinite(want)) norm += want * want;
      }
      difference_ += difference;
      norm_ += norm;
      const double row = relative(difference, norm);
      if (worst_token_ < 0 || row > row_) {
        row_ = row;
        worst_token_ = first_token + t;
        worst_head_ = h;
      }
    }
  }
}

void Comparison::add(const AttentionResult& actual, const AttentionResult& expected, std::int64_t first_token) {
  add_out(actual.out, expected.out, first_token);
  if (actual.lse && expected.lse) lse_ = std::max(lse_.value_or(0), worst_logarithm(*actual.lse, *expected.lse));
  if (actual.max_logits && expected.max_logits) {
    max_logits_ = std::max(max_logits_.value_or(0), worst_logarithm(*actual.max_logits, *expected.max_logits));
  }
}

double Comparison::out() const { return relative(difference_, norm_); }

bool Comparison::within(const Tolerance& tolerance) const {
  return out() <= tolerance.out && row_ <= tolerance.row && lse_.value_or(0) <= tolerance.logarithm &&
         max_logits_.value_or(0) <= tolerance.logarithm;
}

}  // namespace raggedmla::io
