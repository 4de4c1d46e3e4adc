// The one body of all CPU attention kernels. `Products` are the two matrix products (vector_products.hpp,
// amx_products.hpp) over an instruction set's vocabulary `Isa` (isa_*.hpp).
//
// A tile of rows is gathered and brought into the format that multiplies fastest once for all heads:
//
//     gather      64 rows -> keys [64][512] (and, where products take pairs, values [32][512][2])
//     scores      S = q K^T       blocks of heads x rows, summed over channels
//     softmax     P = exp(S * scale - m), m and the sum carried from tile to tile
//     accumulate  out = out * rescale + P V    blocks of heads x channels, over all rows
//
// Included once by each kernel_*.cpp; everything has internal linkage (see tile_kernel.hpp for why).
#pragma once

#include <cstring>

#include "attention/cpu/tile_kernel.hpp"
#include "attention/cpu/tile_panels.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla::cpu {
namespace {

template <class Products>
struct TileKernelBody {
  using Isa = typename Products::Isa;
  using Vector = typename Isa::Vector;
  using Element = typename Isa::Element;
  using Panels = typename Products::Panels;

  static constexpr int width = Panels::width;
  static constexpr int value_width = Panels::value_width;
  static constexpr int lanes = Isa::lanes;
  static constexpr int pack = Isa::pack;
  static constexpr int head_block = Products::head_block;
  static constexpr int row_block = Products::row_block;
  static constexpr int row_multiple = Products::row_multiple;
  static constexpr int staged_rows = Panels::staged_rows;
  static constexpr int block_columns = Products::block_columns;
  static constexpr int column_blocks = value_width / block_columns;

  static_assert(tile_rows % staged_rows == 0 && staged_rows % row_block == 0 && row_block % pack == 0);
  static_assert(value_width % block_columns == 0 && most_heads % head_block == 0);

  static constexpr float infinity = __builtin_inff();

  static int padded(int heads) { return (heads + head_block - 1) / head_block * head_block; }
  static Panels carve(std::byte* scratch, int heads) { return Panels::carve(scratch, padded(heads)); }
  static std::size_t scratch_bytes(int heads) { return carve(nullptr, heads).bytes; }

  static HeadStates states(std::byte* scratch, int heads) {
    const Panels p = carve(scratch, heads);
    return {p.out, p.maximum, p.sum, Panels::out_stride};
  }

  static void begin(std::byte* scratch, int heads, const std::uint16_t* q, std::int64_t stride_head) {
    const Panels p = carve(scratch, heads);
    Products::stage_queries(p, heads, q, stride_head);
    for (int h = 0; h < padded(heads); ++h) {
      p.maximum[h] = -infinity;
      p.sum[h] = 0;
      p.rescale[h] = 1;
    }
    std::memset(p.out, 0, sizeof(float) * static_cast<std::size_t>(heads) * Panels::out_stride);
    // Heads of the padding keep this weight, and whatever their out holds.
    std::memset(p.weights + heads * tile_rows, 0,
                sizeof(Element) * static_cast<std::size_t>(padded(heads) - heads) * tile_rows);
  }

  static void add_tile(std::byte* scratch, int heads, const Tile& tile, const Tile& next, float scale,
                       ReadFp8Row read) {
    const Panels p = carve(scratch, heads);
    const int head_count = padded(heads);
    const int rows = (tile.count + row_multiple - 1) / row_multiple * row_multiple;
    Prefetch prefetch(next, head_count / head_block * (rows / row_block + column_blocks));
    for (int r = 0; r < rows; r += staged_rows) {
      const int end = r + staged_rows < rows ? r + staged_rows : rows;
      gather(p, tile, r, end, read);
      for (int h = 0; h < head_count; h += head_block) {
        for (int block = r; block < end; block += row_block) {
          prefetch.step();
          Products::score_block(p, h, block);
        }
      }
    }
    for (int h = 0; h < head_count; h += head_block) Products::finish_scores(p, h, rows);
    for (int h = 0; h < heads; ++h) softmax_head(p, h, tile.count, rows, scale);
    for (int c = 0; c < value_width; c += block_columns) {
      for (int h = 0; h < head_count; h += head_block) {
        prefetch.step();
        Products::accumulate_block(p, h, c, rows);
      }
    }
  }

  // ---- gather -------------------------------------------------------------------------------------------------------

  static void stage_bf16(Element* target, const std::uint16_t* source, int channels) {
    for (int c = 0; c < channels; c += Panels::operand_elements) Isa::stage_bf16(target + c, source + c);
  }

  /// Scales whose product with the decoded codes stays a normal float; writers store 105 to 150 or so.
  static bool ordinary(const std::uint8_t* scales) {
    for (int g = 0; g < v4_row.nope_width / v4_row.group_width; ++g) {
      if (scales[g] < 1 || scales[g] > 246) return false;
    }
    return true;
  }

  template <Fp8Encoding encoding>
  static void stage_fp8(Element* target, const std::uint8_t* row, const std::uint8_t* scales) {
    for (int g = 0; g < v4_row.nope_width / v4_row.group_width; ++g) {
      const std::uint32_t bits = static_cast<std::uint32_t>(scales[g] + Isa::template fp8_exponent<encoding>) << 23;
      const Vector factor = Isa::broadcast(__builtin_bit_cast(float, bits));
      for (int c = g * v4_row.group_width; c < (g + 1) * v4_row.group_width; c += lanes) {
        Isa::stage(target + c, Isa::multiply(Isa::template load_fp8<encoding>(row + c), factor));
      }
    }
    stage_bf16(target + v4_row.nope_width, reinterpret_cast<const std::uint16_t*>(row + v4_row.nope_width),
               v4_row.rope_width);
  }

  template <Fp8Encoding encoding>
  static void gather_fp8(Element* target, const Tile& tile, int r, ReadFp8Row read) {
    const std::uint8_t *row = tile.rows[r], *scales = tile.scales[r];
    if (ordinary(scales) && !Isa::template has_nan_code<encoding>(row, v4_row.nope_width)) {
      return stage_fp8<encoding>(target, row, scales);
    }
    float channels[width];
    read(row, scales, tile.kinds[r], channels);
    for (int c = 0; c < width; c += lanes) Isa::stage(target + c, Isa::load(channels + c));
  }

  /// Rows [begin, end) into the panels; rows that the tile does not have become 0.
  static void gather(const Panels& p, const Tile& tile, int begin, int end, ReadFp8Row read) {
    for (int r = begin; r < end; ++r) {
      if (r % 4 == 0) Products::keep_awake();
      Element* target = p.key_row(r);
      if (r >= tile.count) {
        std::memset(target, 0, width * sizeof(Element));
        continue;
      }
      switch (tile.kinds[r]) {
        case StoreKind::bf16: stage_bf16(target, reinterpret_cast<const std::uint16_t*>(tile.rows[r]), width); break;
        case StoreKind::fp8_ocp: gather_fp8<Fp8Encoding::ocp>(target, tile, r, read); break;
        case StoreKind::fp8_fnuz: gather_fp8<Fp8Encoding::fnuz>(target, tile, r, read); break;
      }
    }
    if constexpr (!Panels::values_are_keys) {
      for (int r = begin; r < end; r += pack) {
        const Element* keys = p.key_row(r);
        Element* values = p.values + r / pack * Panels::value_stride;
        for (int c = 0; c < value_width; c += Panels::operand_elements) {
          Isa::interleave(values + pack * c, keys + c, keys + Panels::key_stride + c);
        }
      }
    }
  }

  /// Fetches a tile's rows a few cache lines at a time, while products keep the processor busy: more lines at once than
  /// a core has fill buffers would hold up the products' own loads.
  class Prefetch {
   public:
    Prefetch(const Tile& tile, int steps) : tile_(tile) {
      int lines = 0;
      for (int r = 0; r < tile.count; ++r) lines += lines_of(r);
      lines_per_step_ = (lines + steps - 1) / steps;
    }
    void step() {
      for (int left = lines_per_step_; left > 0 && row_ < tile_.count;) {
        if (line_ == lines_of(row_)) {
          ++row_;
          line_ = 0;
          continue;
        }
        const bool is_scales = tile_.kinds[row_] != StoreKind::bf16 && line_ == v4_row.data_bytes / 64;
        __builtin_prefetch(is_scales ? tile_.scales[row_] : tile_.rows[row_] + 64 * line_, 0, 2);
        ++line_;
        --left;
      }
    }

   private:
    int lines_of(int r) const {
      if (tile_.kinds[r] == StoreKind::bf16) return Products::prefetches_bf16 ? 2 * width / 64 : 0;
      return v4_row.data_bytes / 64 + 1;
    }

    const Tile& tile_;
    int lines_per_step_ = 0, row_ = 0, line_ = 0;
  };

  // ---- softmax ------------------------------------------------------------------------------------------------------

  /// e^x for x <= 0, to a unit in the last place: Taylor series of degree 7 on |r| <= ln(2) / 2 (error 5e-9). Exactly 0
  /// below -87, where floats turn subnormal; NaN stays NaN.
  static Vector exponential(Vector x) {
    const Vector lowest = Isa::broadcast(-87.0f);
    const Vector bounded = Isa::maximum(lowest, x);
    const Vector n = Isa::round(Isa::multiply(bounded, Isa::broadcast(1.44269504f)));
    // ln(2) in two parts: the first has few enough bits for n * part to be exact.
    Vector r = Isa::fused(n, Isa::broadcast(-0.693359375f), bounded);
    r = Isa::fused(n, Isa::broadcast(2.12194440e-4f), r);
    constexpr float inverse_factorials[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    Vector sum = Isa::broadcast(inverse_factorials[0]);
    for (int i = 1; i < 8; ++i) sum = Isa::fused(sum, r, Isa::broadcast(inverse_factorials[i]));
    return Isa::zero_below(Isa::times_power_of_two(sum, n), x, lowest);
  }

  static void softmax_head(const Panels& p, int h, int count, int rows, float scale) {
    // Whole vectors are worked on; entries without a row get score -inf, which is weight 0.
    const int end = (rows + lanes - 1) / lanes * lanes;
    float* z = p.scores + h * tile_rows;
    const Vector factor = Isa::broadcast(scale);
    for (int r = 0; r < end; r += lanes) Isa::store(z + r, Isa::multiply(Isa::load(z + r), factor));
    for (int r = count; r < end; ++r) z[r] = -infinity;

    Vector largest = Isa::broadcast(p.maximum[h]);
    // A NaN score is passed over here and makes its weight NaN below.
    for (int r = 0; r < end; r += lanes) largest = Isa::maximum(Isa::load(z + r), largest);
    const float before = p.maximum[h], now = Isa::largest(largest);
    const Vector shift = Isa::broadcast(now == -infinity ? 0.0f : now);  // -inf - -inf would be NaN

    Vector sum = Isa::zero();
    for (int r = 0; r < end; r += lanes) {
      const Vector weight = exponential(Isa::subtract(Isa::load(z + r), shift));
      sum = Isa::add(sum, weight);
      Isa::stage(p.weights + h * tile_rows + r, weight);
    }
    float rescale[lanes];
    Isa::store(rescale, exponential(Isa::subtract(Isa::broadcast(before), shift)));
    p.rescale[h] = rescale[0];
    p.sum[h] = p.sum[h] * rescale[0] + Isa::sum(sum);
    p.maximum[h] = now;
  }

  // ---- output -------------------------------------------------------------------------------------------------------

  static void store(void* target, bool as_f32, const float* values, float factor, int channels) {
    const Vector factors = Isa::broadcast(factor);
    for (int c = 0; c < channels; c += lanes) {
      const Vector value = Isa::multiply(Isa::load(values + c), factors);
      if (as_f32) Isa::store(static_cast<float*>(target) + c, value);
      else Isa::store_bf16(static_cast<std::uint16_t*>(target) + c, value);
    }
  }

  static constexpr TileKernel table(const char* name) {
    return {name, head_block, scratch_bytes, begin, add_tile, states, store, Products::leave_thread};
  }
};

}  // namespace
}  // namespace raggedmla::cpu
