// The CPU backend of attention: threads over units of work (a query, a group of heads, a part of the list).
//
//     for every unit:   walk the lists -> tiles of 64 valid rows -> tile kernel (chosen instruction set)
//     for every head:   join the parts of a split list, sink, inverse RoPE, store
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/backends.hpp"
#include "attention/cpu/attention.hpp"
#include "attention/cpu/instruction_sets.hpp"
#include "attention/cpu/row_walk.hpp"
#include "attention/cpu/store_head.hpp"
#include "base/workspace.hpp"
#include "kv_cache/row_channel.hpp"

namespace raggedmla::cpu {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int value_width = v4_row.value_width;

void read_fp8_row(const std::uint8_t* row, const std::uint8_t* scales, StoreKind kind, float* channels) {
  const Fp8Encoding encoding = kind == StoreKind::fp8_ocp ? Fp8Encoding::ocp : Fp8Encoding::fnuz;
  for (int c = 0; c < v4_row.query_width; ++c) channels[c] = fp8_row_channel(row, scales, encoding, c);
}

// ---- scratch -------------------------------------------------------------------------------------------------------

/// The state of a head after a part of its list, kept until all parts are there.
struct PartState {
  float out[value_width];
  float maximum;
  float sum;
  float unused[14];  // whole cache lines: parts are written by different threads
};
static_assert(sizeof(PartState) % 64 == 0);

std::size_t part_bytes(const Plan& plan) {
  if (plan.splits == 1) return 0;
  return static_cast<std::size_t>(plan.tokens * plan.heads) * static_cast<std::size_t>(plan.splits) * sizeof(PartState);
}

std::size_t thread_bytes(const TileKernel& kernel, const Plan& plan) {
  return (kernel.scratch_bytes(plan.group_heads) + 255) / 256 * 256;
}

// ---- the end of a head ----------------------------------------------------------------------------------------------

void inverse_rope(const AttentionProblem& problem, std::int64_t t, float* out) {
  if (problem.cos_sin == nullptr) return;
  const std::int64_t position = problem.positions(t);
  if (position < 0 || position >= problem.cos_sin_rows) return;
  const float* cosines = problem.cos_sin + position * problem.cos_sin_stride;
  const float* sines = cosines + v4_row.rope_width / 2;
  float* pairs = out + value_width - v4_row.rope_width;
  for (int i = 0; i < v4_row.rope_width / 2; ++i) {
    const float even = pairs[2 * i], odd = pairs[2 * i + 1];
    pairs[2 * i] = even * cosines[i] + odd * sines[i];
    pairs[2 * i + 1] = odd * cosines[i] - even * sines[i];
  }
}

/// Turns and stores one head; `out` is overwritten.
void finish_head(const AttentionProblem& problem, const TileKernel& kernel, std::int64_t t, std::int64_t h, float* out,
                 float maximum, float sum) {
  if (sum == 0) std::fill_n(out, value_width, 0.0f);
  inverse_rope(problem, t, out);
  store_head(problem, kernel, t, h, out, maximum, sum);
  if (problem.max_logits) {
    problem.max_logits[t * problem.max_logits_stride_token + h * problem.max_logits_stride_head] =
        std::isnan(sum) ? sum : maximum;
  }
}

// ---- units ----------------------------------------------------------------------------------------------------------

struct Unit {
  std::int64_t t, first_head;
  int heads, split;
};

Unit unit(const Plan& plan, std::int64_t index) {
  const std::int64_t query_group = index / plan.splits;
  const std::int64_t first_head = query_group % plan.groups * plan.group_heads;
  return {query_group / plan.groups, first_head,
          static_cast<int>(std::min<std::int64_t>(plan.group_heads, plan.heads - first_head)),
          static_cast<int>(index % plan.splits)};
}

void run_unit(const AttentionProblem& problem, const TileKernel& kernel, const Plan& plan, const Unit& unit,
              std::byte* scratch, PartState* parts) {
  const std::uint16_t* q = problem.q + unit.t * problem.q_stride_token + unit.first_head * problem.q_stride_head;
  kernel.begin(scratch, unit.heads, q, problem.q_stride_head);

  RowWalk walk(problem, unit.t, unit.split, plan.splits);
  Tile tiles[2];  // the second of them is the next, so that its rows can be prefetched
  Tile *tile = &tiles[0], *next = &tiles[1];
  for (walk.fill(*tile); tile->count > 0; std::swap(tile, next)) {
    walk.fill(*next);
    kernel.add_tile(scratch, unit.heads, *tile, *next, problem.scale, read_fp8_row);
  }

  const HeadStates states = kernel.states(scratch, unit.heads);
  for (int h = 0; h < unit.heads; ++h) {
    float* out = states.out + h * states.out_stride;
    const std::int64_t head = unit.first_head + h;
    if (plan.splits == 1) {
      finish_head(problem, kernel, unit.t, head, out, states.maximum[h], states.sum[h]);
    } else {
      PartState& part = parts[(unit.t * plan.heads + head) * plan.splits + unit.split];
      std::copy_n(out, value_width, part.out);
      part.maximum = states.maximum[h];
      part.sum = states.sum[h];
    }
  }
}

/// Joins the parts of a split list, in their order.
void join_parts(const AttentionProblem& problem, const TileKernel& kernel, std::int64_t t, std::int64_t h,
                const PartState* parts, int splits) {
  float maximum = -infinity, sum = 0;
  for (int s = 0; s < splits; ++s) maximum = std::max(maximum, parts[s].maximum);
  float out[value_width] = {};
  for (int s = 0; s < splits; ++s) {
    if (parts[s].sum == 0) continue;
    const float weight = std::exp(parts[s].maximum - maximum);
    sum += weight * parts[s].sum;
    for (int c = 0; c < value_width; ++c) out[c] += weight * parts[s].out[c];
  }
  finish_head(problem, kernel, t, h, out, maximum, sum);
}

}  // namespace

std::size_t attention_workspace_bytes(const TileKernel& kernel, const Plan& plan) {
  if (plan.units() == 0) return 0;
  return workspace_bytes_for(static_cast<std::size_t>(plan.threads) * thread_bytes(kernel, plan) + part_bytes(plan));
}

void attention(const TileKernel& kernel, const Plan& plan, const AttentionProblem& problem, Workspace workspace) {
  std::byte* scratch = workspace_scratch(workspace);
  const std::size_t bytes = thread_bytes(kernel, plan);
  PartState* parts = reinterpret_cast<PartState*>(scratch + static_cast<std::size_t>(plan.threads) * bytes);

#pragma omp parallel num_threads(plan.threads)
  {
    std::byte* own = scratch + static_cast<std::size_t>(omp_get_thread_num()) * bytes;
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < plan.units(); ++i) run_unit(problem, kernel, plan, unit(plan, i), own, parts);
    kernel.leave_thread();

    if (plan.splits > 1) {
#pragma omp for
      for (std::int64_t i = 0; i < plan.tokens * plan.heads; ++i) {
        join_parts(problem, kernel, i / plan.heads, i % plan.heads, parts + i * plan.splits, plan.splits);
      }
    }
  }
}

std::size_t attention_workspace_bytes(const AttentionProblem& problem, const Schedule& schedule) {
  return attention_workspace_bytes(chosen_kernel(),
                                   plan(problem, schedule, omp_get_max_threads(), chosen_kernel().head_block));
}

void attention(const AttentionProblem& problem, const Schedule& schedule, Workspace workspace) {
  attention(chosen_kernel(), plan(problem, schedule, omp_get_max_threads(), chosen_kernel().head_block), problem,
            workspace);
}

}  // namespace raggedmla::cpu
