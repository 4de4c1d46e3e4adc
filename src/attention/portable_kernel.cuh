// Attention on any GPU.
//
// One block attends with 16, 32 or 64 heads of one query to one part of that query's lists. It walks them in tiles of
// 16 to 64 rows; a row is gathered once and serves as key and as value:
//
//     gather tile i + S - 1 (row_pipeline.cuh)  .......................................................
//     S = q K^T          each warp: 16 heads x its rows of the tile (or all rows x its channels)
//     P = exp2(S - m)    in the same registers, to shared memory as bf16
//     O += P V           each warp: all heads x its 512 / warps channels, the accumulator never moves
//
// Two barriers a tile, one more where S is sliced by channels. fp8 rows are decoded in place, once for all heads, by
// the warp that copied them. The reference m of a head is raised only when a score exceeds it by more than 8 in base 2:
// P and the sums grow a little instead, and the vote that decides it is part of the barrier that P needs anyway. Few
// warps per tile, because shared memory binds: a tile is written once and read twice, and every further division of the
// heads among warps reads it again. docs/kernels.md counts the bytes and says what was tried.
#pragma once

#include "attention/merge.hpp"
#include "attention/output.cuh"
#include "attention/row_pipeline.cuh"
#include "attention/schedule.hpp"
#include "gpu/dependent_launch.cuh"
#include "gpu/kernel_argument.cuh"
#include "gpu/mma/mma.cuh"

namespace raggedmla::gpu {

/// A rise of the running maximum (base 2) that P = exp2(S - m) absorbs without rescaling.
constexpr float tolerated_rise = 8.0f;

/// What a block works on.
struct Place {
  int t, first_head;
  int heads;  // real ones, the rest of the head tile is padding
  int split, splits;
};

template <TileShape shape>
class Block {
 public:
  __device__ Block(const AttentionProblem& problem, std::byte* shared)
      : problem_(problem), rows_(problem, shared), lane_(lane_index()), warp_(warp_index()) {
#pragma unroll
    for (int slot = 0; slot < mma::rows_per_lane; ++slot) reference_[slot] = negative_infinity();
  }

  __device__ void run(const Place& place, const Partials& partials) {
    // What only the prologue and the end need waits in shared memory: the loop needs every register.
    if (threadIdx.x == 0) *rows_.template at<Place>(layout.place) = place;
    for (int i = static_cast<int>(threadIdx.x); i < row_owners * shape.heads; i += shape.warps * warp_lanes) {
      floats(layout.largest)[i] = negative_infinity();
    }
    QueryCopies queries;
#pragma unroll
    for (int tile = 0; tile < (shape.q_in_registers ? 1 : head_tiles); ++tile) start_queries(queries, place, tile);
    const int parts = rows_.begin(place.t, place.split, place.splits);
    if (place.split == 0 && place.first_head == 0 && place.splits > 1 && threadIdx.x == 0) {
      partials.counts[place.t] = parts;
    }
    let_kernel_behind_start();  // the merge kernel
    if (place.split >= parts && place.split > 0) return;

#pragma unroll
    for (int tile = 0; tile < shape.stages - 1; ++tile) {
      rows_.start_copy(tile);
      rows_.commit();
      rows_.land();
    }
    rows_.fetch_second_batch();
    if constexpr (shape.q_in_registers) take_queries(queries, place);
    for (int tile = 0; tile < rows_.tiles(); ++tile) {
      rows_.wait();
      const bool encoded = rows_.store_kind(tile) != StoreKind::bf16;
      if (encoded) {
        if (tile == 0) __syncthreads();
        rows_.dequantise(tile);
      }
      __syncthreads();  // the tile is there; the stage and the ring entry of the tile before are free
      rows_.resolve_ahead(tile);
      if constexpr (shape.mask_again) {
        rows_.mask(tile);
        __syncthreads();
      }
      if constexpr (shape.fetch_late) {
        rows_.fetch_now(tile + shape.stages - 1);
        __syncthreads();
      }
      rows_.start_copy(tile + shape.stages - 1);
      rows_.commit();
      compute_scores(tile);
      compute_probabilities();
      add_values(tile);
      rows_.land();
      rows_.fetch_ahead(tile);
    }
    write_results(partials);
  }

 private:
  static constexpr TileLayout layout = layout_of(shape);
  static constexpr int width = v4_row.query_width;
  static constexpr int head_tiles = shape.heads / 16;
  // Scores of a warp: [16 * score_tiles heads, mma::n * row_fragments rows], contracted over 32 * steps channels.
  static constexpr int head_warps = shape.warps / (shape.row_warps * shape.channel_warps);
  static constexpr int score_tiles = head_tiles / head_warps;
  static constexpr int row_fragments = shape.rows / shape.row_warps / mma::n;
  static constexpr int steps = width / shape.channel_warps / 32;
  // Once the slices are added, a warp owns `owned` neighbouring fragments of one head tile; `row_owners` warps share
  // it.
  static constexpr int fragments = score_tiles * row_fragments;
  static constexpr int owned = fragments > shape.channel_warps ? fragments / shape.channel_warps : 1;
  // A warp counts its fragments from the first it owns, so that which registers it keeps is known at compile time.
  static constexpr bool rotates = score_tiles == 1 && fragments % shape.channel_warps == 0;
  static constexpr int row_owners = shape.row_warps * row_fragments / owned;
  static_assert(shape.columns == mma::n);
  // Outputs of a warp: [heads, value_width * value_blocks channels].
  static constexpr int value_width = mma::n * mma::value_fragments;
  static constexpr int value_blocks = width / shape.warps / value_width;
  static_assert(row_fragments % owned == 0 && head_tiles % head_warps == 0);

  __device__ int channel_warp() const { return warp_ % shape.channel_warps; }
  __device__ int row_warp() const { return warp_ / shape.channel_warps % shape.row_warps; }
  __device__ int first_score_tile() const { return warp_ / (shape.channel_warps * shape.row_warps) * score_tiles; }

  __device__ int row_fragment(int f) const { return rotates ? (f + first_owned()) % row_fragments : f; }
  __device__ int first_owned() const { return channel_warp() * owned; }
  __device__ bool owns_scores() const { return fragments % shape.channel_warps == 0 || first_owned() < fragments; }
  __device__ int owned_tile() const { return first_score_tile() + first_owned() / row_fragments; }
  __device__ int owned_row() const { return (row_warp() * row_fragments + first_owned() % row_fragments) * mma::n; }
  __device__ int row_owner() const { return owned_row() / (mma::n * owned); }
  __device__ int owned_head(int slot) const { return owned_tile() * 16 + mma::row_of(lane_, slot); }

  __device__ SharedAddress address(int offset) const { return rows_.stage(0) + offset; }
  __device__ float* floats(int offset) const { return rows_.template at<float>(offset); }

  using QueryCopies = AsyncCopies<16 * row_tile::chunks / (shape.warps * warp_lanes)>;

  /// Where 16 queries go: their place in shared memory, or, on their way to registers, the stage that is free longest.
  __device__ SharedAddress query_target(int tile) const {
    return shape.q_in_registers ? rows_.stage(shape.stages - 1) : address(layout.q) + tile * 16 * row_tile::row_bytes;
  }
  __device__ void start_queries(QueryCopies& copies, const Place& place, int tile) {
    constexpr int heads_at_once = shape.warps * warp_lanes / row_tile::chunks;
    const int chunk = static_cast<int>(threadIdx.x) % row_tile::chunks;
    const void* zeros = zero_row;
#pragma unroll
    for (int i = 0; i < 16 / heads_at_once; ++i) {
      const int head = static_cast<int>(threadIdx.x) / row_tile::chunks + i * heads_at_once;
      const std::uint16_t* source = problem_.q + place.t * problem_.q_stride_token +
                                    (place.first_head + tile * 16 + head) * problem_.q_stride_head;
      const bool real = tile * 16 + head < place.heads;
      copies.start(i, query_target(tile) + row_tile::offset(head, chunk), real ? source + chunk * 8 : zeros, real);
    }
    copies.commit();
  }
  /// Takes queries that go to registers, of which the first 16 are under way, followed by the rows of stages - 1 tiles.
  __device__ void take_queries(QueryCopies& copies, const Place& place) {
#pragma unroll
    for (int tile = 0; tile < head_tiles; ++tile) {
      if (tile > 0) start_queries(copies, place, tile);
      copies.land();
      copies.template wait<shape.stages - 1>();
      __syncthreads();
      if (head_warps == 1 || tile == first_score_tile()) {
        const SharedAddress queries =
            row_tile::advance(query_target(tile) + mma::query_offset(lane_), channel_warp() * steps * 4);
#pragma unroll
        for (int step = 0; step < steps; ++step) mma::load_query(q_[head_warps == 1 ? tile : 0][step], queries, step);
      }
      if (tile + 1 < head_tiles) __syncthreads();
    }
  }

  __device__ void compute_scores(int tile) {
    // A product depends on the one before it in its accumulator: four independent accumulators hide its latency.
    constexpr int chains = row_fragments * score_tiles >= 4 ? 1 : 4 / (row_fragments * score_tiles);
    constexpr int unrolled_steps = shape.q_in_registers ? steps : 4;
    mma::C sums[score_tiles][row_fragments][chains] = {};
    const int first_chunk = channel_warp() * steps * 4;
    const SharedAddress keys = row_tile::advance(
        rows_.stage(tile) + row_warp() * row_fragments * mma::n * row_tile::row_bytes + mma::key_offset(lane_),
        first_chunk);
    const SharedAddress queries = row_tile::advance(
        address(layout.q) + first_score_tile() * 16 * row_tile::row_bytes + mma::query_offset(lane_), first_chunk);
#pragma unroll unrolled_steps
    for (int step = 0; step < steps; ++step) {
      mma::A a[2];
      mma::B b[row_fragments][2];
      if constexpr (!shape.q_in_registers) mma::load_query(a, queries, step);
#pragma unroll
      for (int f = 0; f < row_fragments; ++f) {
        mma::load_keys(b[f], keys + row_fragment(f) * (mma::n * row_tile::row_bytes), step);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int f = 0; f < row_fragments; ++f) {
#pragma unroll
          for (int m = 0; m < score_tiles; ++m) {
            const mma::A& q = shape.q_in_registers ? q_[m][step][half] : a[half];
            mma::multiply(sums[m][f][(2 * step + half) % chains], q, b[f][half]);
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < score_tiles; ++m) {
#pragma unroll
      for (int f = 0; f < row_fragments; ++f) {
#pragma unroll
        for (int chain = 1; chain < chains; ++chain) {
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[m][f][0].v[e] += sums[m][f][chain].v[e];
        }
      }
    }
    if constexpr (shape.channel_warps > 1) {
      add_slices(sums);
    } else {
#pragma unroll
      for (int f = 0; f < row_fragments; ++f) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores_[f][e] = sums[0][f][0].v[e];
      }
    }
    apply_scale_and_mask(tile);
  }

  /// Adds the channel slices: every warp hands the fragments that it does not own to their owners.
  template <int chains>
  __device__ void add_slices(const mma::C (&sums)[score_tiles][row_fragments][chains]) {
    constexpr int handed_over = rotates ? fragments - owned : fragments;
    const auto place = [&](int slice, int fragment) {
      const int index = (warp_ - channel_warp() + slice) * handed_over + (rotates ? fragment - owned : fragment);
      return address(layout.partial_scores) + (index * warp_lanes + lane_) * 16;
    };
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
      const mma::C& sum = sums[i / row_fragments][i % row_fragments][0];
      if (rotates ? i < owned : i == first_owned()) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores_[i % owned][e] = sum.v[e];
      } else {
        store_shared(place(channel_warp(), i), sum);
      }
    }
    __syncthreads();
    if (!owns_scores()) return;
#pragma unroll
    for (int distance = 1; distance < shape.channel_warps; ++distance) {
      const int other = (channel_warp() + distance) % shape.channel_warps;
#pragma unroll
      for (int f = 0; f < owned; ++f) {
        const int fragment = rotates ? fragments - distance * owned + f : first_owned();
        const mma::C more = load_shared<mma::C>(place(other, fragment));
#pragma unroll
        for (int e = 0; e < 4; ++e) scores_[f][e] += more.v[e];
      }
    }
  }

  __device__ void apply_scale_and_mask(int tile) {
    if (!owns_scores()) return;
    const float scale = problem_.scale * log2_e;
#pragma unroll
    for (int f = 0; f < owned; ++f) {
      const int row = owned_row() + f * mma::n;
      const std::uint32_t valid = rows_.valid_rows(tile, row / 16);
#pragma unroll
      for (int e = 0; e < 4; ++e) scores_[f][e] *= scale;
      if (valid == 0xFFFFu) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if ((valid >> (row % 16 + mma::column_of(lane_, e)) & 1) == 0) scores_[f][e] = negative_infinity();
      }
    }
  }

  /// Turns scores into P in shared memory. If any head's scores rise too far above its reference, all warps agree on
  /// new references and rescale. Ends with a barrier.
  __device__ void compute_probabilities() {
    float tile_max[mma::rows_per_lane];
    bool rises = false;
    float p[owned][4];
    if (owns_scores()) {
#pragma unroll
      for (int slot = 0; slot < mma::rows_per_lane; ++slot) tile_max[slot] = negative_infinity();
#pragma unroll
      for (int f = 0; f < owned; ++f) {
#pragma unroll
        for (int e = 0; e < 4; ++e) tile_max[mma::row_slot(e)] = fmaxf(tile_max[mma::row_slot(e)], scores_[f][e]);
      }
#pragma unroll
      for (int slot = 0; slot < mma::rows_per_lane; ++slot) {
#pragma unroll
        for (int distance = 1; distance < mma::lanes_per_row; distance *= 2) {
          tile_max[slot] = fmaxf(tile_max[slot], shuffle_xor(tile_max[slot], distance));
        }
        if (problem_.max_logits && lane_ % mma::lanes_per_row == 0) {
          float& largest = floats(layout.largest)[row_owner() * shape.heads + owned_head(slot)];
          largest = fmaxf(largest, tile_max[slot]);
        }
        rises |= tile_max[slot] > reference_[slot] + tolerated_rise;
      }
      store_probabilities(p);
    }
    if (__syncthreads_or(rises)) {
      raise_references(tile_max);
      if (owns_scores()) store_probabilities(p);
      __syncthreads();
      rescale_output();
    }
    if (owns_scores()) {
#pragma unroll
      for (int f = 0; f < owned; ++f) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sum_[mma::row_slot(e)] += p[f][e];
      }
    }
  }

  __device__ void store_probabilities(float (&p)[owned][4]) {
    const SharedAddress corner =
        address(layout.probabilities) + owned_tile() * 16 * probability_pitch(shape) + owned_row() * 2;
#pragma unroll
    for (int f = 0; f < owned; ++f) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        // Before the first valid row the reference is -inf, and -inf - -inf is no number.
        const float reference = reference_[mma::row_slot(e)];
        p[f][e] = exp2_fast(scores_[f][e] - (reference == negative_infinity() ? 0.0f : reference));
      }
      mma::store_probabilities(corner + f * mma::n * 2, probability_pitch(shape), lane_, p[f]);
    }
  }

  __device__ void raise_references(const float (&tile_max)[mma::rows_per_lane]) {
    float* maxima = floats(layout.maxima);
    if (owns_scores() && lane_ % mma::lanes_per_row == 0) {
#pragma unroll
      for (int slot = 0; slot < mma::rows_per_lane; ++slot) {
        maxima[row_owner() * shape.heads + owned_head(slot)] = tile_max[slot];
      }
    }
    __syncthreads();
    if (!owns_scores()) return;
#pragma unroll
    for (int slot = 0; slot < mma::rows_per_lane; ++slot) {
      float raised = reference_[slot];
#pragma unroll
      for (int w = 0; w < row_owners; ++w) raised = fmaxf(raised, maxima[w * shape.heads + owned_head(slot)]);
      const float factor = reference_[slot] == raised ? 1.0f : exp2_fast(reference_[slot] - raised);
      reference_[slot] = raised;
      sum_[slot] *= factor;
      if (row_owner() == 0 && lane_ % mma::lanes_per_row == 0) floats(layout.factors)[owned_head(slot)] = factor;
    }
  }

  __device__ void rescale_output() {
#pragma unroll
    for (int m = 0; m < head_tiles; ++m) {
#pragma unroll
      for (int slot = 0; slot < mma::rows_per_lane; ++slot) {
        const float factor = floats(layout.factors)[m * 16 + mma::row_of(lane_, slot)];
#pragma unroll
        for (int f = 0; f < value_blocks * mma::value_fragments; ++f) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (mma::row_slot(e) == slot) output_[m][f].v[e] *= factor;
          }
        }
      }
    }
  }

  __device__ void add_values(int tile) {
    const SharedAddress values =
        row_tile::advance(rows_.stage(tile) + mma::value_offset(lane_), warp_ * (width / shape.warps / 8));
#pragma unroll
    for (int k = 0; k < shape.rows / 16; ++k) {
      mma::A p[head_tiles];
#pragma unroll
      for (int m = 0; m < head_tiles; ++m) {
        mma::load_probabilities(p[m], address(layout.probabilities) + m * 16 * probability_pitch(shape) + k * 32,
                                probability_pitch(shape), lane_);
      }
#pragma unroll
      for (int block = 0; block < value_blocks; ++block) {
        mma::B b[mma::value_fragments];
        mma::load_values(b, values + k * 16 * row_tile::row_bytes, block);
#pragma unroll
        for (int m = 0; m < head_tiles; ++m) {
#pragma unroll
          for (int f = 0; f < mma::value_fragments; ++f) {
            mma::multiply(output_[m][block * mma::value_fragments + f], p[m], b[f]);
          }
        }
      }
    }
  }

  __device__ void write_results(const Partials& partials) {
    const Place place = *rows_.template at<Place>(layout.place);
    float* sums = floats(layout.maxima);
    if (owns_scores()) {
#pragma unroll
      for (int slot = 0; slot < mma::rows_per_lane; ++slot) {
        float sum = sum_[slot];
#pragma unroll
        for (int distance = 1; distance < mma::lanes_per_row; distance *= 2) sum += shuffle_xor(sum, distance);
        if (lane_ % mma::lanes_per_row == 0) {
          sums[row_owner() * shape.heads + owned_head(slot)] = sum;
          if (row_owner() == 0) floats(layout.references)[owned_head(slot)] = reference_[slot];
        }
      }
    }
    __syncthreads();
    for (int head = static_cast<int>(threadIdx.x); head < place.heads; head += shape.warps * warp_lanes) {
      finish_head(head, place, partials);
    }
    __syncthreads();
    write_output(place, partials);
  }

  /// lse, maximum and the factor that normalises the head's output.
  __device__ void finish_head(int head, const Place& place, const Partials& partials) {
    float sum = 0, largest = negative_infinity();
#pragma unroll
    for (int w = 0; w < row_owners; ++w) {
      sum += floats(layout.maxima)[w * shape.heads + head];
      largest = fmaxf(largest, floats(layout.largest)[w * shape.heads + head]);
    }
    const HeadEnd end(floats(layout.references)[head], sum);
    const bool whole = place.splits == 1;
    const std::int64_t h = place.first_head + head;
    floats(layout.factors)[head] = end.factor(whole ? sink_of(problem_, h) : negative_infinity());
    if (whole) {
      store_statistics(problem_, place.t, h, end.lse(), end.max_logit(largest));
    } else {
      const std::int64_t part = (place.t * problem_.heads + h) * place.splits + place.split;
      partials.lse[part] = end.lse();
      partials.max_logits[part] = end.max_logit(largest);
    }
  }

  /// Normalises, rotates and stores the output, 16 heads at a time through the stages, so that threads store
  /// neighbouring channels.
  __device__ void write_output(const Place& place, const Partials& partials) {
    const bool whole = place.splits == 1;
    const InverseRope rope(whole ? problem_.cos_sin : nullptr, problem_.cos_sin_stride, problem_.cos_sin_rows,
                           problem_.positions, place.t);
    void* out = whole ? problem_.out : partials.out;
    const std::int64_t first =
        whole ? place.t * problem_.out_stride_token + place.first_head * problem_.out_stride_head
              : ((place.t * problem_.heads + place.first_head) * place.splits + place.split) * width;
    const std::int64_t stride = whole ? problem_.out_stride_head : std::int64_t{place.splits} * width;
#pragma unroll
    for (int m = 0; m < head_tiles; ++m) {
      if (m > 0) __syncthreads();
#pragma unroll
      for (int block = 0; block < value_blocks; ++block) {
#pragma unroll
        for (int pair = 0; pair < mma::channel_pairs; ++pair) {
          const mma::ChannelPair at = mma::channel_pair(pair);
          const mma::C* fragment = &output_[m][block * mma::value_fragments];
          const int row = mma::row_of(lane_, mma::row_slot(at.element0));
          const int channel = (warp_ * value_blocks + block) * value_width + mma::channel_of(lane_, pair);
          store_shared(output_place(row, channel),
                       FloatPair{{fragment[at.fragment0].v[at.element0], fragment[at.fragment1].v[at.element1]}});
        }
      }
      __syncthreads();
      constexpr int quads = width / 4;
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x); i < 16 * quads; i += shape.warps * warp_lanes) {
        const int head = m * 16 + i / quads, channel = i % quads * 4;
        if (head >= place.heads) break;
        const float factor = floats(layout.factors)[head];
        const auto [v] = load_shared<FourChannels>(output_place(i / quads, channel));
        store_channels(out, whole ? problem_.out_is_f32 : true, first + head * stride, channel,
                       {{v[0] * factor, v[1] * factor, v[2] * factor, v[3] * factor}}, rope);
      }
    }
  }

  struct alignas(8) FloatPair {
    float v[2];
  };
  /// f32 [16, 512]; the exclusive or keeps the pairs that lanes of different rows store in different banks.
  __device__ SharedAddress output_place(int row, int channel) const {
    return address(0) + row * (width * 4) + ((channel / 4 ^ row % 4 * 2) * 16) + channel % 4 * 4;
  }

  const AttentionProblem& problem_;
  RowPipeline<shape> rows_;
  int lane_, warp_;
  mma::A q_[shape.q_in_registers ? score_tiles : 1][shape.q_in_registers ? steps : 1][2];
  mma::C output_[head_tiles][value_blocks * mma::value_fragments] = {};
  float scores_[owned][4];
  // Of this warp's heads: what scores are measured against (base 2), this lane's share of the sum of P.
  float reference_[mma::rows_per_lane];
  float sum_[mma::rows_per_lane] = {};
};

/// `Tile::shape` is the shape: nvcc 13.0 cannot name a kernel with a template argument of class type.
/// Grid: queries x head groups x parts in one dimension, parts fastest, so that blocks that read the same rows run at
/// the same time.
template <class Tile>
__global__ void __launch_bounds__(Tile::shape.warps* warp_lanes, Tile::shape.blocks_per_multiprocessor)
    portable_attention(const __grid_constant__ AttentionProblem problem, const __grid_constant__ Partials partials,
                       int head_groups, int splits) {
  extern __shared__ __align__(1024) std::byte shared[];
  const unsigned unit = blockIdx.x / static_cast<unsigned>(splits);
  const int split = static_cast<int>(blockIdx.x % static_cast<unsigned>(splits));
  const int t = static_cast<int>(unit / static_cast<unsigned>(head_groups));
  const int group = static_cast<int>(unit % static_cast<unsigned>(head_groups));
  Block<Tile::shape> block(first_kernel_argument(problem), shared);
  constexpr int tile_heads = Tile::shape.heads;
  const int first_head = group * tile_heads;
  const std::int64_t heads = problem.heads - first_head;
  block.run({t, first_head, heads < tile_heads ? static_cast<int>(heads) : tile_heads, split, splits}, partials);
}

}  // namespace raggedmla::gpu
