// The parameters of the query tile kernel.
#pragma once

#include <cuda.h>

#include "attention/sm90/query_tiles.hpp"
#include "gpu/runtime.hpp"

namespace raggedmla::gpu::sm90 {

/// The merged lists of the launch's items (union_lists.cuh), in the workspace.
struct UnionList {
  std::int32_t* lengths = nullptr;  // [items], -1: the item's lists are walked one by one
  uint2* entries = nullptr;         // [items, capacity] of (slot, counts by query: a nibble each)
  std::int64_t capacity = 0;
};

struct QueryTileCall {
  AttentionProblem problem;
  int queries_per_item = 0;
  int first_item = 0, last_item = 0;  // items [first, last) of this launch
  bool wide_stores = false;           // output rows allow 16-byte (bf16) or 8-byte (f32) stores
  bool rows_by_copy_engine[AttentionProblem::max_segments]{};  // bf16 ranges of flat rows, or of pages in order
  bool out_by_copy_engine = false;                             // bf16 with strides that boxes allow
  UnionList unions[AttentionProblem::max_segments];
  CUtensorMap maps[AttentionProblem::max_segments][2];  // boxes of 64 and of 16 rows
  CUtensorMap q_map, out_map;                           // boxes of an item's heads and queries, 64 channels
};

}  // namespace raggedmla::gpu::sm90
