// How far a result is from what it should be.
#pragma once

#include <cstdint>
#include <optional>

#include "raggedmla/tensor.hpp"

namespace raggedmla::io {

/// What a result may differ by.
struct Tolerance {
  double out = 4e-3;        ///< norm of the difference over norm of the expected output
  double row = 1e-2;        ///< the same for every single [t, h] row: one large row can hide the others
  double logarithm = 1e-3;  ///< lse and max_logits, absolute, where finite
};

/// An attention result, `[T, H, 512]` and `[T, H]` on the CPU, any strides.
struct AttentionResult {
  TensorView out;  // f32 or bf16
  OptionalTensor lse, max_logits;
};

/// Adds up the differences of one or several parts of a call.
class Comparison {
 public:
  /// Compares what both hold. Expected +inf in lse means an empty row like -inf: some writers store that. Zero rows
  /// must be zero: the error of a row whose expected norm is 0 is 0 or infinite. `first_token`: of the call, for
  /// worst_token.
  void add(const AttentionResult& actual, const AttentionResult& expected, std::int64_t first_token = 0);

  double out() const;                                 ///< of everything added
  double row() const { return row_; }                 ///< the worst row
  std::optional<double> lse() const { return lse_; }  ///< the worst, absolute; nothing if one side has none
  std::optional<double> max_logits() const { return max_logits_; }
  std::int64_t worst_token() const { return worst_token_; }
  std::int64_t worst_head() const { return worst_head_; }
  bool within(const Tolerance& tolerance) const;

 private:
  void add_out(const TensorView& actual, const TensorView& expected, std::int64_t first_token);

  double difference_ = 0, norm_ = 0;  // sums of squares
  double row_ = 0;
  std::optional<double> lse_, max_logits_;
  std::int64_t worst_token_ = -1, worst_head_ = -1;
};

}  // namespace raggedmla::io
