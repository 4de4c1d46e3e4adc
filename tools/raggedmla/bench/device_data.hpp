// Kernels of the bench tool alone: random tensors made on the device, the ceilings' copy and gather, time stamps.
#pragma once

#include <cstdint>

#include "raggedmla/tensor.hpp"

namespace raggedmla::bench {

/// Roughly normal bf16 values (sum of four uniforms, unit variance).
void fill_bf16(void* data, std::int64_t count, std::uint64_t seed, Stream stream);

/// fp8_ds_mla pages with finite codes, scale bytes near 2^-7 and small rope channels.
void fill_fp8_pages(void* data, std::int64_t pages, std::int64_t page_stride, int rows_per_page, std::uint64_t seed,
                    Stream stream);

/// How the lists of neighbouring queries relate.
struct ListShape {
  std::int64_t tokens = 0;
  std::int64_t length = 0;      ///< entries of each list, distinct
  std::int64_t rows = 0;        ///< of the source, a power of two, >= 2 * length
  std::int64_t row_offset = 0;  ///< added to the rows of query t: t * row_offset (requests with rows of their own)
  double overlap = 0;           ///< share of a list that the next query's list has, too; 0 = neighbours are disjoint
};

/// i32 lists `[T, stride]`: entry j of query t is candidate (base_j + epoch) of slot j, where the epoch rises every
/// 1 / (1 - overlap) queries at a phase of the slot's own. Slots own disjoint rows, scattered over the source.
void fill_lists(std::int32_t* indices, std::int64_t stride, const ListShape& shape, std::uint64_t seed, Stream stream);

/// i32 sequence first + step * i.
void fill_sequence(std::int32_t* data, std::int64_t count, std::int64_t first, std::int64_t step, Stream stream);

/// target = source, 16 bytes a thread: the copy ceiling.
void copy_bytes(void* target, const void* source, std::int64_t bytes, Stream stream);

/// Reads the rows that dense lists name, `row_bytes` each at `pitch`, and keeps nothing: the gather ceiling. Block b
/// reads list b % tokens, so that a few lists can fill the device as well.
void gather_rows_only(const void* rows, std::int64_t pitch, std::int64_t row_bytes, const std::int32_t* indices,
                      std::int64_t tokens, std::int64_t length, std::int64_t blocks, void* sink, Stream stream);

/// Writes the device's nanosecond clock: begin and end of a neighbouring kernel, as the device sees them.
void time_stamp(std::uint64_t* nanoseconds, Stream stream);

/// A kernel that keeps the device busy for about that long and then writes its end time.
void spin(std::uint64_t nanoseconds, std::uint64_t* end, Stream stream);

/// The list building that engines had: an exclusive scan in one launch, the packing in another.
void scan_lengths(const std::int32_t* lengths, std::int64_t tokens, std::int64_t width, std::int32_t* indptr,
                  Stream stream);
void pack_rows(const std::int32_t* indices, std::int64_t width, const std::int32_t* indptr, std::int64_t tokens,
               std::int32_t* flat, Stream stream);

/// Waits for the stream and returns an integer from the device: the host wait that the library never does.
std::int32_t read_back(const std::int32_t* value, Stream stream);

}  // namespace raggedmla::bench
