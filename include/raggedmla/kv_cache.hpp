// Key/value rows of DeepSeek-V4 attention: where they lie, how they are packed, how they are written and read.
//
// Key and value are the same row (multi-query attention with one latent head): 448 "nope" channels, then 64 channels
// that carry rotary position. Formats are drawn byte by byte in docs/formats.md.
#pragma once

#include <cstdint>
#include <variant>

#include "raggedmla/tensor.hpp"

namespace raggedmla {

/// The sizes of one model family's cache row. Everything that depends on them is derived from here.
struct RowShape {
  int query_width;  ///< channels of a query and of a key row
  int value_width;  ///< leading channels of the row that are the value (and the width of the output)
  int nope_width;   ///< channels stored as fp8 in `fp8_ds_mla`
  int rope_width;   ///< trailing channels, stored as bf16 in `fp8_ds_mla`
  int group_width;  ///< channels that share one scale
  int data_bytes;   ///< bytes of an fp8 row without its scales
  int scale_bytes;  ///< bytes of its scale record
};

/// DeepSeek-V4 (Flash and Pro): 512 channels, 576 + 8 bytes.
inline constexpr RowShape v4_row{512, 512, 448, 64, 64, 576, 8};

/// How the 448 fp8 channels of a row are encoded. `ocp`: e4m3fn, bias 7, largest 448, NaN 0x7F/0xFF. `fnuz`: e4m3fnuz,
/// bias 8, largest 240 (writers use 224), NaN 0x80. AMD gfx942 caches mix both: window rows fnuz, compressed rows ocp.
enum class Fp8Encoding : std::uint8_t { ocp, fnuz };

/// Rows `[N, 512]` bf16 in one flat buffer, any row stride that keeps rows on 16-byte boundaries.
struct DenseKv {
  TensorView rows;
};

/// Rows in pages of `rows_per_page`. Slot `s` is row `s % rows_per_page` of page `s / rows_per_page`.
///
/// * `fp8_ds_mla`: `pages` is u8 `[P, bytes]` with `bytes >= 584 * rows_per_page`, or u8 `[P, rows_per_page, 584]` as
///   engines pass it (the inner strides of the latter are a fiction and ignored). Rows of 576 bytes first, then one
///   8-byte scale record per row. `pages.stride[0]` is the page stride in bytes, any multiple of 16.
/// * bf16 rows: `pages` is bf16 `[P, rows_per_page, 512]`, strides multiples of 8 elements.
///
/// The format follows from `pages.dtype` (u8 or bf16); `encoding` is only read for fp8 pages.
struct PagedKv {
  TensorView pages;
  int rows_per_page = 64;
  Fp8Encoding encoding = Fp8Encoding::ocp;
};

using KvSource = std::variant<DenseKv, PagedKv>;

/// Floor of a group's largest magnitude in `quantize_rows` (writers disagree, readers take either).
enum class ScaleFloor : std::uint8_t {
  amax,      ///< max(amax, 1e-4): DeepSeek's reference and vLLM's window rows. Smallest scale byte 105 (fnuz 106).
  quotient,  ///< max(amax / largest, 1e-4): FlashMLA's tests and vLLM's compressed rows on CUDA. Smallest byte 114.
};

/// Quantises bf16 rows into fp8 pages at given slots.
///
/// Per group of 64 channels: a = max|x| (NaN ignored), floored; e = ceil(log2(a / m)), m = 448 (ocp) or 224 (fnuz);
/// byte = RNE_e4m3(x * 2^-e); scale byte = clamp(e + 127, 0, 254). The 64 rope channels are copied as bf16. The eighth
/// byte of the scale record is written 0. For bf16 pages rows are copied. Source: DeepSeek-V4 reference `act_quant`.
/// A slot < 0 or beyond the pages writes nothing. Two equal slots in one call: the later row is stored.
/// A NaN is stored as NaN; a group that holds an infinity gets scale byte 254 and reads it back as infinity.
struct QuantizeRows {
  TensorView rows;   ///< `[M, 512]` bf16, rows on 16-byte boundaries
  TensorView slots;  ///< `[M]` i32 or i64
  PagedKv cache;
  ScaleFloor floor = ScaleFloor::amax;
};
void quantize_rows(const QuantizeRows& arguments, Stream stream = {});

/// Reads rows at slots: `out[m] = row slots[m]` as bf16 (e4m3 value times 2^(scale byte - 127), exact). A slot < 0 or
/// beyond the source is never read: its out row is 0.
struct DequantizeRows {
  KvSource source;
  TensorView slots;  ///< `[M]` i32 or i64
  TensorView out;    ///< `[M, 512]` bf16, rows on 16-byte boundaries
};
void dequantize_rows(const DequantizeRows& arguments, Stream stream = {});

/// Gathers a range of logical rows per request into a bf16 workspace, for prefill over a flat buffer:
/// `out[b, out_offset + i] = row first[b] + i of request b` for `0 <= i < count[b]`, through the request's block table.
/// A logical row that the table does not hold gives a zero row; rows beyond the workspace are dropped.
struct GatherRows {
  PagedKv source;
  TensorView block_table;  ///< `[B, P]` i32 or i64, strided
  TensorView first;        ///< `[B]` i32 or i64
  TensorView count;        ///< `[B]` i32 or i64
  TensorView out;          ///< `[B, M, 512]` bf16, rows on 16-byte boundaries
  std::int64_t out_offset = 0;
};
void gather_rows(const GatherRows& arguments, Stream stream = {});

}  // namespace raggedmla
