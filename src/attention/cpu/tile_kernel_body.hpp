// The one body of all CPU attention kernels. `Isa` is an instruction set's vocabulary (isa_*.hpp).
//
// A tile of rows is gathered and brought into the format that multiplies fastest once for all heads:
//
//     gather      64 rows -> keys [64][512] (and, where products take pairs, values [32][512][2])
//     scores      S = q K^T       registers hold 4 heads x a few rows, summed over channels
//     softmax     P = exp(S * scale - m), m and the sum carried from tile to tile
//     accumulate  out = out * rescale + P V    registers hold 4 heads x a few vectors of channels over all rows
//
// Included once by each kernel_*.cpp; everything has internal linkage (see tile_kernel.hpp for why).
#pragma once

#include <cstring>

#include "attention/cpu/tile_kernel.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla::cpu {
namespace {

template <class Isa>
struct TileKernelBody {
  using Vector = typename Isa::Vector;
  using Element = typename Isa::Element;  // of a product: float, or bf16 bits in pairs
  using Operand = typename Isa::Operand;

  static constexpr int width = v4_row.query_width;
  static constexpr int value_width = v4_row.value_width;
  static constexpr int lanes = Isa::lanes;
  static constexpr int pack = Isa::pack;  // elements that one lane of a product sums: 1, or 2 for bf16 pairs
  static constexpr int operand_elements = lanes * pack;
  static constexpr int row_block = Isa::row_block;
  static constexpr int column_block = Isa::column_block;
  // Rows that are gathered and scored together: 16 KiB of keys beside the 8 KiB of four queries in the first-level
  // cache.
  static constexpr int staged_rows = 8;

  // One cache line more than a power of two, so that the rows of a column do not share cache sets.
  static constexpr int line = 64 / static_cast<int>(sizeof(Element));
  static constexpr int key_stride = width + line;
  static constexpr int value_stride = pack * value_width + line;
  static constexpr int column_blocks = value_width / (column_block * lanes);
  static constexpr bool values_are_keys = pack == 1;

  static_assert(tile_rows % staged_rows == 0 && staged_rows % row_block == 0 && row_block % pack == 0 &&
                head_block * row_block % lanes == 0);
  static_assert(value_width % (column_block * lanes) == 0 && width % operand_elements == 0);

  static constexpr float infinity = __builtin_inff();

  struct Panels {
    Element* q;        // [heads][width]
    Element* keys;     // [tile_rows][key_stride]
    Element* values;   // [tile_rows / pack][value_stride]: rows interleaved pack-wise
    Element* weights;  // [heads][tile_rows]
    float* scores;     // [heads][tile_rows]
    float* out;        // [heads][value_width]
    float* maximum;    // [heads]
    float* sum;        // [heads]
    float* rescale;    // [heads]
    std::size_t bytes;
  };

  static int padded(int heads) { return (heads + head_block - 1) / head_block * head_block; }

  static Panels carve(std::byte* scratch, int heads) {
    Panels p{};
    const std::size_t h = static_cast<std::size_t>(padded(heads));
    const auto take = [&]<class T>(T*& pointer, std::size_t count) {
      if (scratch != nullptr) pointer = reinterpret_cast<T*>(scratch + p.bytes);  // null: only the size is asked for
      p.bytes += (count * sizeof(T) + 63) / 64 * 64;
    };
    take(p.q, h * width);
    take(p.keys, std::size_t{tile_rows} * key_stride);
    if constexpr (values_are_keys) p.values = p.keys;
    else take(p.values, std::size_t{tile_rows / pack} * value_stride);
    take(p.weights, h * tile_rows);
    take(p.scores, h * tile_rows);
    take(p.out, h * value_width);
    take(p.maximum, h);
    take(p.sum, h);
    take(p.rescale, h);
    return p;
  }

  static std::size_t scratch_bytes(int heads) { return carve(nullptr, heads).bytes; }

  static HeadStates states(std::byte* scratch, int heads) {
    const Panels p = carve(scratch, heads);
    return {p.out, p.maximum, p.sum, value_width};
  }

  static void begin(std::byte* scratch, int heads, const std::uint16_t* q, std::int64_t stride_head) {
    const Panels p = carve(scratch, heads);
    for (int h = 0; h < padded(heads); ++h) {
      Element* row = p.q + h * width;
      if (h < heads) stage_bf16(row, q + h * stride_head, width);
      else std::memset(row, 0, width * sizeof(Element));
      p.maximum[h] = -infinity;
      p.sum[h] = 0;
    }
    std::memset(p.out, 0, static_cast<std::size_t>(padded(heads)) * value_width * sizeof(float));
  }

  static void add_tile(std::byte* scratch, int heads, const Tile& tile, const Tile& next, float scale,
                       ReadFp8Row read) {
    const Panels p = carve(scratch, heads);
    const int head_count = padded(heads);
    const int rows = (tile.count + row_block - 1) / row_block * row_block;
    Prefetch prefetch(next, head_count / head_block * (rows / row_block + column_blocks));
    for (int r = 0; r < rows; r += staged_rows) {
      const int end = r + staged_rows < rows ? r + staged_rows : rows;
      gather(p, tile, r, end, read);
      for (int h = 0; h < head_count; h += head_block) {
        for (int block = r; block < end; block += row_block) {
          prefetch.step();
          score_block(p, h, block);
        }
      }
    }
    for (int h = 0; h < head_count; ++h) softmax_head(p, h, tile.count, rows, scale);
    for (int c = 0; c < value_width; c += column_block * lanes) {
      for (int h = 0; h < head_count; h += head_block) {
        prefetch.step();
        accumulate_block(p, h, c, rows);
      }
    }
  }

  // ---- gather -------------------------------------------------------------------------------------------------------

  static void stage_bf16(Element* target, const std::uint16_t* source, int channels) {
    for (int c = 0; c < channels; c += lanes) Isa::stage_bf16(target + c, source + c);
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
      Element* target = p.keys + r * key_stride;
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
    if constexpr (!values_are_keys) {
      for (int r = begin; r < end; r += pack) {
        const Element* keys = p.keys + r * key_stride;
        Element* values = p.values + r / pack * value_stride;
        for (int c = 0; c < value_width; c += lanes) {
          Isa::interleave(values + pack * c, keys + c, keys + key_stride + c);
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
      for (int i = 0; i < lines_per_step_ && row_ < tile_.count; ++i) {
        const bool is_last = line_ + 1 == lines_of(row_);
        const bool is_scales = is_last && tile_.kinds[row_] != StoreKind::bf16;
        __builtin_prefetch(is_scales ? tile_.scales[row_] : tile_.rows[row_] + 64 * line_, 0, 2);
        line_ = is_last ? 0 : line_ + 1;
        row_ += is_last;
      }
    }

   private:
    int lines_of(int r) const {
      return tile_.kinds[r] == StoreKind::bf16 ? 2 * width / 64 : v4_row.data_bytes / 64 + 1;
    }

    const Tile& tile_;
    int lines_per_step_ = 0, row_ = 0, line_ = 0;
  };

  // ---- S = q K^T ----------------------------------------------------------------------------------------------------

  static void score_block(const Panels& p, int h0, int r0) {
    const Element* q = p.q + h0 * width;
    const Element* keys = p.keys + r0 * key_stride;
    Vector sums[head_block * row_block];
    for (Vector& sum : sums) sum = Isa::zero();
    for (int c = 0; c < width; c += operand_elements) {
      Operand key[row_block];
      for (int r = 0; r < row_block; ++r) key[r] = Isa::load_operand(keys + r * key_stride + c);
      for (int h = 0; h < head_block; ++h) {
        const Operand query = Isa::load_operand(q + h * width + c);
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

  // ---- out = out * rescale + P V ------------------------------------------------------------------------------------

  static void accumulate_block(const Panels& p, int h0, int c0, int rows) {
    float* out = p.out + h0 * value_width + c0;
    const Element* weights = p.weights + h0 * tile_rows;
    const Element* values = p.values + pack * c0;
    Vector sums[head_block][column_block];
    for (int h = 0; h < head_block; ++h) {
      const Vector rescale = Isa::broadcast(p.rescale[h0 + h]);
      for (int v = 0; v < column_block; ++v) {
        sums[h][v] = Isa::multiply(Isa::load(out + h * value_width + v * lanes), rescale);
      }
    }
    for (int r = 0; r < rows; r += pack) {
      Operand value[column_block];
      for (int v = 0; v < column_block; ++v) value[v] = Isa::load_operand(values + v * operand_elements);
      values += value_stride;
      for (int h = 0; h < head_block; ++h) {
        const Operand weight = Isa::broadcast_operand(weights + h * tile_rows + r);
        for (int v = 0; v < column_block; ++v) sums[h][v] = Isa::multiply_add(weight, value[v], sums[h][v]);
      }
    }
    for (int h = 0; h < head_block; ++h) {
      for (int v = 0; v < column_block; ++v) Isa::store(out + h * value_width + v * lanes, sums[h][v]);
    }
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

  static constexpr TileKernel table(const char* name) { return {name, scratch_bytes, begin, add_tile, states, store}; }
};

}  // namespace
}  // namespace raggedmla::cpu
