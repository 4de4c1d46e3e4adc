// One channel of a stored row as a number: the definition of reading for every format.
#pragma once

#include "base/bfloat16.hpp"
#include "base/float8.hpp"
#include "kv_cache/row_store.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla {

/// An aligned pair of bytes as bf16.
RAGGEDMLA_HOST_DEVICE inline float load_bf16(const std::uint8_t* bytes) {
  return float_from_bf16(*reinterpret_cast<const std::uint16_t*>(bytes));
}

/// Channel c of an fp8_ds_mla row: 448 fp8 bytes with one scale per 64, then 64 bf16.
RAGGEDMLA_HOST_DEVICE inline float fp8_row_channel(const std::uint8_t* row, const std::uint8_t* scales,
                                                   Fp8Encoding encoding, int channel) {
  if (channel >= v4_row.nope_width) return load_bf16(row + v4_row.nope_width + 2 * (channel - v4_row.nope_width));
  return float_from_fp8(row[channel], encoding) * float_from_ue8m0(scales[channel / v4_row.group_width]);
}

/// Channel c of the row at a valid slot.
RAGGEDMLA_HOST_DEVICE inline float row_channel(const RowStore& store, std::int64_t slot, int channel) {
  if (store.kind == StoreKind::bf16) return load_bf16(store.row(slot) + 2 * channel);
  const Fp8Encoding encoding = store.kind == StoreKind::fp8_ocp ? Fp8Encoding::ocp : Fp8Encoding::fnuz;
  return fp8_row_channel(store.row(slot), store.scales(slot), encoding, channel);
}

}  // namespace raggedmla
