// Attention of query tiles on Hopper: several neighbouring queries times their heads fill the 64 rows of a warpgroup
// product and walk their cache rows together. See query_tiles.cu.
#pragma once

#include <cstddef>

#include "attention/problem.hpp"
#include "raggedmla/attention.hpp"

namespace raggedmla::gpu::sm90 {

/// Queries that can share a tile: one nibble of a 32-bit word each.
inline constexpr int max_queries = 8;
/// Heads that fit one tile.
inline constexpr int max_heads = 64;

/// Queries of one work item: as many as their heads fit.
constexpr int queries_per_item(std::int64_t heads) {
  const std::int64_t fit = max_heads / heads;
  return static_cast<int>(fit < max_queries ? fit : max_queries);
}

/// Distinct rows that the lists of `queries` (>= 1) neighbours name, as a share of their entries: 1 / queries if they
/// share all, 1 if nothing. `overlap`: share of a list that the next one has, too; < 0: unknown, taken as 0.
constexpr float distinct_share(int queries, float overlap) {
  const float shared = overlap > 0 ? (overlap < 1 ? overlap : 1) : 0;  // a NaN is unknown
  return (1 + static_cast<float>(queries - 1) * (1 - shared)) / static_cast<float>(queries);
}

/// Whether the kernel computes this call.
bool takes(const AttentionProblem& problem, const Schedule& schedule);
/// Whether it is the fastest that does. `was_fp8`: the portable kernel would read fp8 pages instead.
bool pays(const AttentionProblem& problem, const Schedule& schedule, int multiprocessors, bool was_fp8);

std::size_t workspace_bytes(const AttentionProblem& problem, const Schedule& schedule);
void attention(const AttentionProblem& problem, const Schedule& schedule, int device, Workspace workspace,
               Stream stream);

/// Loads the kernels onto the current device.
void preload();

}  // namespace raggedmla::gpu::sm90
