// Both products with an instruction set's vectors: blocks of 4 heads whose sums stay in registers.
//
//     scores      4 heads x a few rows, each a vector of partial sums over channels, added up at the end
//     accumulate  4 heads x a few vectors of channels, over all rows
#pragma once

#include <cstring>

#include "attention/cpu/tile_panels.hpp"

namespace raggedmla::cpu {
namespace {

template <class Isa_>
struct VectorProducts {
  using Isa = Isa_;
  // Eight rows are gathered and scored together: 16 KiB of keys beside the 8 KiB of four queries in the first-level
  // cache.
  using Panels = TilePanels<Isa, 8>;
  using Element = typename Isa::Element;
  using Vector = typename Isa::Vector;
  using Operand = typename Isa::Operand;

  static constexpr int lanes = Isa::lanes;
  static constexpr int head_block = 4;
  static constexpr int row_block = Isa::row_block;
  static constexpr int row_multiple = row_block;
  static constexpr int column_block = Isa::column_block;
  static constexpr int block_columns = column_block * lanes;
  static constexpr int operand_elements = Panels::operand_elements;

  static_assert(row_block % Isa::pack == 0 && head_block * row_block % lanes == 0);
  static_assert(Panels::width % operand_elements == 0);

  static constexpr bool prefetches_bf16 = true;

  static void leave_thread() {}
  static void keep_awake() {}

  static void stage_queries(const Panels& p, int heads, const std::uint16_t* q, std::int64_t stride_head) {
    const int padded = (heads + head_block - 1) / head_block * head_block;
    for (int h = 0; h < padded; ++h) {
      Element* row = p.q + h * Panels::width;
      if (h >= heads) {
        std::memset(row, 0, Panels::width * sizeof(Element));
        continue;
      }
      for (int c = 0; c < Panels::width; c += operand_elements) Isa::stage_bf16(row + c, q + h * stride_head + c);
    }
  }

  static void score_block(const Panels& p, int h0, int r0) {
    const Element* keys = p.key_row(r0);
    const Element* q = p.q + h0 * Panels::width;
    Vector sums[head_block * row_block];
    for (Vector& sum : sums) sum = Isa::zero();
    for (int c = 0; c < Panels::width; c += operand_elements) {
      Operand key[row_block];
      for (int r = 0; r < row_block; ++r) key[r] = Isa::load_operand(keys + r * Panels::key_stride + c);
      for (int h = 0; h < head_block; ++h) {
        const Operand query = Isa::load_operand(q + h * Panels::width + c);
        for (int r = 0; r < row_block; ++r) {
          sums[h * row_block + r] = Isa::multiply_add(query, key[r], sums[h * row_block + r]);
        }
      }
    }
    alignas(64) float block[head_block * row_block];
    for (int i = 0; i < head_block * row_block; i += lanes) Isa::store(block + i, Isa::sum_each(sums + i));
    for (int h = 0; h < head_block; ++h) {
      std::memcpy(p.scores + (h0 + h) * tile_rows + r0, block + h * row_block, row_block * sizeof(float));
    }
  }

  static void finish_scores(const Panels&, int, int) {}

  static void accumulate_block(const Panels& p, int h0, int c0, int rows) {
    float* out = p.out + h0 * Panels::out_stride + c0;
    const Element* weights = p.weights + h0 * tile_rows;
    const Element* values = p.values + Isa::pack * c0;
    Vector sums[head_block][column_block];
    for (int h = 0; h < head_block; ++h) {
      const Vector rescale = Isa::broadcast(p.rescale[h0 + h]);
      for (int v = 0; v < column_block; ++v) {
        sums[h][v] = Isa::multiply(Isa::load(out + h * Panels::out_stride + v * lanes), rescale);
      }
    }
    for (int r = 0; r < rows; r += Isa::pack) {
      Operand value[column_block];
      for (int v = 0; v < column_block; ++v) value[v] = Isa::load_operand(values + v * operand_elements);
      values += Panels::value_stride;
      for (int h = 0; h < head_block; ++h) {
        const Operand weight = Isa::broadcast_operand(weights + h * tile_rows + r);
        for (int v = 0; v < column_block; ++v) sums[h][v] = Isa::multiply_add(weight, value[v], sums[h][v]);
      }
    }
    for (int h = 0; h < head_block; ++h) {
      for (int v = 0; v < column_block; ++v) Isa::store(out + h * Panels::out_stride + v * lanes, sums[h][v]);
    }
  }
};

}  // namespace
}  // namespace raggedmla::cpu
