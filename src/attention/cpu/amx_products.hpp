// Both products on AMX tiles: blocks of 16 heads.
//
//     scores      S^T [16 rows][16 heads] = K q^T      keys as they lie, queries in pairs of channels; then transposed
//     accumulate  out [16 heads][16 channels] += P V   weights as they lie, values in pairs of rows
#pragma once

#include "attention/cpu/isa_amx.hpp"
#include "attention/cpu/tile_panels.hpp"

namespace raggedmla::cpu {
namespace {

struct AmxProducts {
  using Isa = Amx;
  using Panels = TilePanels<Isa, 16>;
  using Element = Isa::Element;
  using Vector = Isa::Vector;

  static constexpr int side = Isa::side;
  static constexpr int depth = Isa::tile_bytes / static_cast<int>(sizeof(Element));  // products that a tile sums
  static constexpr int head_block = side;
  static constexpr int row_block = side;
  static constexpr int row_multiple = depth;
  static constexpr int block_columns = 4 * side;
  // Copying rows keeps enough lines on their way by itself. With prefetches beside the products, which need the core's
  // fill buffers for their tiles, prefill took 1.15 times as long. (fp8 rows take longer to convert: 0.8 times.)
  static constexpr bool prefetches_bf16 = false;

  static constexpr std::int64_t bytes(int elements) { return elements * static_cast<std::int64_t>(sizeof(Element)); }
  static constexpr std::int64_t float_bytes(int floats) { return floats * static_cast<std::int64_t>(sizeof(float)); }

  // Tile registers. The first five have a row per head, so that few heads cost little: out is 0 to 3.
  static constexpr int per_head = 5, weights = 4;
  static constexpr int values = 5, more_values = 6;
  static constexpr int scores = 5, keys = 6, queries = 7;

  static void leave_thread() { Isa::release(); }
  /// The matrix unit falls asleep after 0.6 us without products and takes 0.5 us to wake. Gathering rows takes longer
  /// than that; what this computes is overwritten.
  static void keep_awake() { Isa::multiply_add_tiles<scores, keys, queries>(); }

  /// q as [blocks of 16 heads][512 / 32][16 pairs of channels][16 heads][2]: right operands of K q^T.
  static void stage_queries(const Panels& p, int heads, const std::uint16_t* q, std::int64_t stride_head) {
    Isa::configure(per_head, heads < side ? heads : side);
    Element* target = p.q;
    for (int h0 = 0; h0 < heads; h0 += head_block) {
      for (int c = 0; c < Panels::width; c += depth) {
        Vector pairs[side];
        for (int h = 0; h < side; ++h) {
          pairs[h] = h0 + h < heads ? _mm512_loadu_ps(q + (h0 + h) * stride_head + c) : Isa::zero();
        }
        Isa::transpose(pairs);
        for (int i = 0; i < side; ++i, target += depth) _mm512_store_ps(target, pairs[i]);
      }
    }
  }

  /// Leaves the block of scores transposed: [rows][heads] where [heads][rows] belongs.
  static void score_block(const Panels& p, int h0, int r0) {
    const Element* q = p.q + h0 * Panels::width;
    const Element* key_rows = p.key_row(r0);
    Isa::zero_tile<scores>();
    for (int c = 0; c < Panels::width; c += depth) {
      Isa::load_tile<keys>(key_rows + c, bytes(Panels::key_stride));
      Isa::load_tile<queries>(q + c * side, bytes(depth));
      Isa::multiply_add_tiles<scores, keys, queries>();
    }
    Isa::store_tile<scores>(p.scores + h0 * tile_rows + r0, float_bytes(tile_rows));
  }

  /// Transposes the scores of a block of heads, 16 rows at a time.
  static void finish_scores(const Panels& p, int h0, int rows) {
    for (int r = 0; r < rows; r += side) {
      float* block = p.scores + h0 * tile_rows + r;
      Vector lines[side];
      for (int i = 0; i < side; ++i) lines[i] = Isa::load(block + i * tile_rows);
      Isa::transpose(lines);
      for (int i = 0; i < side; ++i) Isa::store(block + i * tile_rows, lines[i]);
    }
  }

  static void accumulate_block(const Panels& p, int h0, int c0, int rows) {
    float* out = p.out + h0 * Panels::out_stride + c0;
    const std::int64_t out_stride = float_bytes(Panels::out_stride), value_stride = bytes(Panels::value_stride);
    for (int h = 0; h < side; ++h) {
      if (p.rescale[h0 + h] == 1) continue;
      const Vector rescale = Isa::broadcast(p.rescale[h0 + h]);
      float* row = out + h * Panels::out_stride;
      for (int c = 0; c < block_columns; c += Isa::lanes) {
        Isa::store(row + c, Isa::multiply(Isa::load(row + c), rescale));
      }
    }
    Isa::load_tile<0>(out, out_stride);
    Isa::load_tile<1>(out + side, out_stride);
    Isa::load_tile<2>(out + 2 * side, out_stride);
    Isa::load_tile<3>(out + 3 * side, out_stride);
    for (int r = 0; r < rows; r += depth) {
      const Element* row_pairs = p.values + r / 2 * Panels::value_stride + 2 * c0;
      Isa::load_tile<weights>(p.weights + h0 * tile_rows + r, bytes(tile_rows));
      Isa::load_tile<values>(row_pairs, value_stride);
      Isa::multiply_add_tiles<0, weights, values>();
      Isa::load_tile<more_values>(row_pairs + depth, value_stride);
      Isa::multiply_add_tiles<1, weights, more_values>();
      Isa::load_tile<values>(row_pairs + 2 * depth, value_stride);
      Isa::multiply_add_tiles<2, weights, values>();
      Isa::load_tile<more_values>(row_pairs + 3 * depth, value_stride);
      Isa::multiply_add_tiles<3, weights, more_values>();
    }
    Isa::store_tile<0>(out, out_stride);
    Isa::store_tile<1>(out + side, out_stride);
    Isa::store_tile<2>(out + 2 * side, out_stride);
    Isa::store_tile<3>(out + 3 * side, out_stride);
  }
};

}  // namespace
}  // namespace raggedmla::cpu
