// Some queries of an attention call as a call of their own.
#pragma once

#include <deque>
#include <vector>

#include "raggedmla/attention.hpp"
#include "support/tensor.hpp"

namespace raggedmla::test {

/// Attention is defined query by query, so the results are those of the whole call. Views the whole call's rows; owns
/// its queries and lists. The outputs are still the whole call's: set them.
class QuerySubset {
 public:
  QuerySubset(const Attention& whole, const std::vector<std::int64_t>& queries);
  QuerySubset(const QuerySubset&) = delete;
  QuerySubset& operator=(const QuerySubset&) = delete;

  Attention call;
  std::vector<Segment> segments;  // what call.segments views

 private:
  /// Elements of the first dimension.
  const Tensor& gather(const TensorView& view, const std::vector<std::int64_t>& which);
  RowSelection gather(const RowSelection& rows, const std::vector<std::int64_t>& queries);

  std::deque<Tensor> tensors_;
};

}  // namespace raggedmla::test
