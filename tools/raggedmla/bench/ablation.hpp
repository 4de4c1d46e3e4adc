// The portable attention kernel with single decisions undone: how many warps share a tile of 16 heads, whether rows are
// masked again between their arrival and the products, and whether list entries are fetched ahead. These three are what
// an earlier sparse prefill kernel gained half of its speed from; the bench shows what they are worth in this one.
#pragma once

#include <span>

#include "raggedmla/attention.hpp"

namespace raggedmla::bench {

struct AblatedKernel {
  const char* name;
  /// Attends with at most 16 heads of every query; needs no workspace.
  void (*attend)(const Attention& call, Stream stream);
};

/// The library's kernel first, then each decision undone, then all of them.
std::span<const AblatedKernel> ablated_kernels();

}  // namespace raggedmla::bench
