// The matrix ceiling: a large bf16 product through cuBLASLt, loaded at run time if it is installed.
#pragma once

#include <string>

#include "raggedmla/tensor.hpp"

namespace raggedmla::bench {

struct MatrixRate {
  double flops_per_second = 0;  ///< 0: not measured
  std::string source;           ///< the library, or why it was not measured
};

/// An 8192 x 8192 x 8192 bf16 product with fp32 accumulation on random data, median of several.
MatrixRate measure_matrix_rate(Device device);

}  // namespace raggedmla::bench
