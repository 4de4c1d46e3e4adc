// A thread's working memory in the CPU attention kernels: what it keeps of its heads, and the tile at hand.
#pragma once

#include <cstddef>

#include "attention/cpu/tile_kernel.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla::cpu {
namespace {

/// Rows are gathered and scored `staged_rows_` at a time.
template <class Isa, int staged_rows_>
struct TilePanels {
  using Element = typename Isa::Element;  // of a product: float, or bf16 bits in pairs

  static constexpr int width = v4_row.query_width;
  static constexpr int value_width = v4_row.value_width;
  static constexpr int staged_rows = staged_rows_;
  static constexpr int pack = Isa::pack;  // elements that one lane of a product sums: 1, or 2 for bf16 pairs
  static constexpr int operand_elements = Isa::lanes * pack;
  static constexpr bool values_are_keys = pack == 1;

  // One cache line more than a power of two, so that the rows of a column do not share cache sets.
  static constexpr int line = 64 / static_cast<int>(sizeof(Element));
  static constexpr int key_stride = width + line;
  static constexpr int value_stride = pack * value_width + line;
  static constexpr int key_rows = values_are_keys ? tile_rows : staged_rows;
  static constexpr int out_stride = value_width + 64 / static_cast<int>(sizeof(float));

  Element* q;        // [heads][width], in the order that the products want
  Element* keys;     // [key_rows][key_stride]
  Element* values;   // [tile_rows / pack][value_stride]: rows interleaved pack-wise
  Element* weights;  // [heads][tile_rows]
  float* scores;     // [heads][tile_rows]
  float* out;        // [heads][out_stride]
  float* maximum;    // [heads]
  float* sum;        // [heads]
  float* rescale;    // [heads]
  std::size_t bytes;

  /// Row r of the tile, or where it is staged.
  Element* key_row(int r) const { return keys + r % key_rows * key_stride; }

  /// `heads`: a whole number of head blocks.
  static TilePanels carve(std::byte* scratch, int heads) {
    TilePanels p{};
    const std::size_t h = static_cast<std::size_t>(heads);
    const auto take = [&]<class T>(T*& pointer, std::size_t count) {
      if (scratch != nullptr) pointer = reinterpret_cast<T*>(scratch + p.bytes);  // null: only the size is asked for
      p.bytes += (count * sizeof(T) + 63) / 64 * 64;
    };
    take(p.q, h * width);
    take(p.keys, std::size_t{key_rows} * key_stride);
    if constexpr (values_are_keys) p.values = p.keys;
    else take(p.values, std::size_t{tile_rows / pack} * value_stride);
    take(p.weights, h * tile_rows);
    take(p.scores, h * tile_rows);
    take(p.out, h * out_stride);
    take(p.maximum, h);
    take(p.sum, h);
    take(p.rescale, h);
    return p;
  }
};

}  // namespace
}  // namespace raggedmla::cpu
