"""Triton kernels that RaggedMLA is measured against: one program per (query, 16 heads), one pass over the list.

They are written from a description of how an engine without special kernels does this work, and kept as simple as that
description: bf16 products, online softmax in fp32, heads padded to 16, no split of a list.

The prefill kernel comes in two states, to show what three small changes are worth:

    before   8 warps, the rows are masked a second time after the load, indices are loaded when they are needed
    after    4 warps, no operation between the load and the product, the next tile's indices are already on their way
"""

import torch
import triton
import triton.language as tl

BLOCK_H = 16
BLOCK_K = 16
STATES = {"before": dict(prefetch=False, num_warps=8), "after": dict(prefetch=True, num_warps=4)}


@triton.jit
def _softmax_step(scores, valid, running_max, running_sum):
    """One online-softmax step: probabilities of this tile and the factor for everything accumulated so far."""
    scores = tl.where(valid[None, :], scores, float("-inf"))
    new_max = tl.maximum(running_max, tl.max(scores, axis=1))  # running_max starts finite: no -inf minus -inf
    probabilities = tl.where(valid[None, :], tl.exp(scores - new_max[:, None]), 0.0)
    rescale = tl.exp(running_max - new_max)
    return probabilities, rescale, new_max, running_sum * rescale + tl.sum(probabilities, axis=1)


@triton.jit
def _denominator(running_max, running_sum, sink, heads, in_heads, HAS_SINK: tl.constexpr):
    """The softmax denominator with the sink, and 0 for a query without rows."""
    inverse = tl.where(running_sum > 0, 1.0 / running_sum, 0.0)
    if HAS_SINK:
        logits = tl.load(sink + heads, mask=in_heads, other=float("-inf"))
        inverse = tl.where(running_sum > 0, 1.0 / (running_sum + tl.exp(logits - running_max)), 0.0)
    return inverse


@triton.jit
def prefill_kernel(q, kv, indices, indptr, sink, out, scale, kv_rows, H, stride_q, stride_out,
                   D: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr, HAS_SINK: tl.constexpr,
                   OPTIMISED: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    in_heads = heads < H
    channels = tl.arange(0, D)
    columns = tl.arange(0, BLOCK_K)
    begin = tl.load(indptr + t)
    end = tl.load(indptr + t + 1)

    query = tl.load(q + t * stride_q + heads[:, None] * D + channels[None, :], mask=in_heads[:, None], other=0.0)
    accumulator = tl.zeros([BLOCK_H, D], tl.float32)
    running_max = tl.full([BLOCK_H], -3.4e38, tl.float32)
    running_sum = tl.zeros([BLOCK_H], tl.float32)

    if OPTIMISED:
        next_rows = tl.load(indices + begin + columns, mask=begin + columns < end, other=-1)
    for start in range(begin, end, BLOCK_K):
        if OPTIMISED:
            rows = next_rows
            ahead = start + BLOCK_K + columns
            next_rows = tl.load(indices + ahead, mask=ahead < end, other=-1)
        else:
            rows = tl.load(indices + start + columns, mask=start + columns < end, other=-1)
        valid = (rows >= 0) & (rows < kv_rows)
        keys = tl.load(kv + rows.to(tl.int64)[:, None] * D + channels[None, :], mask=valid[:, None], other=0.0)
        if not OPTIMISED:
            keys = tl.where(valid[:, None], keys, 0.0)
        scores = tl.dot(query, tl.trans(keys)) * scale
        probabilities, rescale, running_max, running_sum = _softmax_step(scores, valid, running_max, running_sum)
        accumulator = accumulator * rescale[:, None] + tl.dot(probabilities.to(keys.dtype), keys)

    result = accumulator * _denominator(running_max, running_sum, sink, heads, in_heads, HAS_SINK)[:, None]
    tl.store(out + t * stride_out + heads[:, None] * D + channels[None, :], result.to(tl.bfloat16),
             mask=in_heads[:, None])


@triton.jit
def _attend_pages(query_nope, query_rope, pages, indices, begin, end, page_stride, slots, scale,
                  acc_nope, acc_rope, running_max, running_sum,
                  ROWS_PER_PAGE: tl.constexpr, BLOCK_K: tl.constexpr):
    """Attends to one ragged list of fp8 page rows: 448 e4m3 bytes, 64 bf16, seven power-of-two scales in the footer."""
    columns = tl.arange(0, BLOCK_K)
    nope = tl.arange(0, 512)  # a tile's width must be a power of two: the last 64 are masked
    rope = tl.arange(0, 64)
    for start in range(begin, end, BLOCK_K):
        slot = tl.load(indices + start + columns, mask=start + columns < end, other=-1)
        valid = (slot >= 0) & (slot < slots)
        slot = tl.where(valid, slot, 0)
        row = slot % ROWS_PER_PAGE
        page = pages + (slot // ROWS_PER_PAGE).to(tl.int64) * page_stride
        data = page + row * 576
        scales = page + ROWS_PER_PAGE * 576 + row * 8
        in_nope = valid[:, None] & (nope[None, :] < 448)
        code = tl.load(data[:, None] + nope[None, :], mask=in_nope, other=0)
        exponent = tl.load(scales[:, None] + nope[None, :] // 64, mask=in_nope, other=0)
        factor = (exponent.to(tl.int32) << 23).to(tl.float32, bitcast=True)
        keys_nope = (code.to(tl.float8e4nv, bitcast=True).to(tl.float32) * factor).to(tl.bfloat16)
        rope_address = (data + 448).to(tl.pointer_type(tl.bfloat16))
        keys_rope = tl.load(rope_address[:, None] + rope[None, :], mask=valid[:, None], other=0.0)

        scores = tl.dot(query_nope, tl.trans(keys_nope)) + tl.dot(query_rope, tl.trans(keys_rope))
        probabilities, rescale, running_max, running_sum = _softmax_step(scores * scale, valid, running_max,
                                                                         running_sum)
        acc_nope = acc_nope * rescale[:, None] + tl.dot(probabilities.to(tl.bfloat16), keys_nope)
        acc_rope = acc_rope * rescale[:, None] + tl.dot(probabilities.to(tl.bfloat16), keys_rope)
    return acc_nope, acc_rope, running_max, running_sum


@triton.jit
def decode_kernel(q, main_pages, main_indices, main_indptr, main_stride, main_slots,
                  extra_pages, extra_indices, extra_indptr, extra_stride, extra_slots,
                  sink, out, scale, H, stride_q, stride_out,
                  MAIN_ROWS: tl.constexpr, EXTRA_ROWS: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
                  HAS_SINK: tl.constexpr, HAS_EXTRA: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    in_heads = heads < H
    nope = tl.arange(0, 512)
    rope = tl.arange(0, 64)
    query = q + t * stride_q + heads[:, None] * 512
    query_nope = tl.load(query + nope[None, :], mask=in_heads[:, None] & (nope[None, :] < 448), other=0.0)
    query_rope = tl.load(query + 448 + rope[None, :], mask=in_heads[:, None], other=0.0)
    acc_nope = tl.zeros([BLOCK_H, 512], tl.float32)
    acc_rope = tl.zeros([BLOCK_H, 64], tl.float32)
    running_max = tl.full([BLOCK_H], -3.4e38, tl.float32)
    running_sum = tl.zeros([BLOCK_H], tl.float32)

    acc_nope, acc_rope, running_max, running_sum = _attend_pages(
        query_nope, query_rope, main_pages, main_indices, tl.load(main_indptr + t), tl.load(main_indptr + t + 1),
        main_stride, main_slots, scale, acc_nope, acc_rope, running_max, running_sum, MAIN_ROWS, BLOCK_K)
    if HAS_EXTRA:
        acc_nope, acc_rope, running_max, running_sum = _attend_pages(
            query_nope, query_rope, extra_pages, extra_indices, tl.load(extra_indptr + t),
            tl.load(extra_indptr + t + 1), extra_stride, extra_slots, scale, acc_nope, acc_rope, running_max,
            running_sum, EXTRA_ROWS, BLOCK_K)

    inverse = _denominator(running_max, running_sum, sink, heads, in_heads, HAS_SINK)[:, None]
    target = out + t * stride_out + heads[:, None] * 512
    tl.store(target + nope[None, :], (acc_nope * inverse).to(tl.bfloat16),
             mask=in_heads[:, None] & (nope[None, :] < 448))
    tl.store(target + 448 + rope[None, :], (acc_rope * inverse).to(tl.bfloat16), mask=in_heads[:, None])


@triton.jit
def pack_kernel(indices, lengths, indptr, flat, width, BLOCK: tl.constexpr):
    """Row t's first lengths[t] entries go to flat[indptr[t] ...]."""
    t = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < tl.load(lengths + t)
    entries = tl.load(indices + t * width + column, mask=inside, other=-1)
    tl.store(flat + tl.load(indptr + t) + column, entries, mask=inside)


# ---- launchers -----------------------------------------------------------------------------------------------------


def prefill(q, kv, indices, indptr, sink, out, scale, state="after"):
    """q [T, H, 512] bf16, kv [N, 512] bf16, indices/indptr CSR i32, sink [H] f32 or None, out [T, H, 512] bf16."""
    T, H, D = q.shape
    prefill_kernel[(T, triton.cdiv(H, BLOCK_H))](
        q, kv, indices, indptr, sink, out, scale, kv.shape[0], H, q.stride(0), out.stride(0), D=D, BLOCK_H=BLOCK_H,
        BLOCK_K=BLOCK_K, HAS_SINK=sink is not None, OPTIMISED=STATES[state]["prefetch"],
        num_warps=STATES[state]["num_warps"])
    return out


def decode(q, main_pages, main_list, extra_pages, extra_list, sink, out, scale):
    """q [T, H, 512] bf16; pages u8 [P, rows, 584] with any page stride; lists are (indices, indptr) i32."""
    T, H, _ = q.shape
    has_extra = extra_pages is not None
    if not has_extra:
        extra_pages, extra_list = main_pages, main_list
    main_rows, extra_rows = main_pages.shape[1], extra_pages.shape[1]
    decode_kernel[(T, triton.cdiv(H, BLOCK_H))](
        q, main_pages, *main_list, main_pages.stride(0), main_pages.shape[0] * main_rows,
        extra_pages, *extra_list, extra_pages.stride(0), extra_pages.shape[0] * extra_rows,
        sink, out, scale, H, q.stride(0), out.stride(0), MAIN_ROWS=main_rows, EXTRA_ROWS=extra_rows, BLOCK_H=BLOCK_H,
        BLOCK_K=BLOCK_K, HAS_SINK=sink is not None, HAS_EXTRA=has_extra, num_warps=4)
    return out


def build_ragged(indices, lengths, host_wait):
    """Dense rows -> (flat, indptr). With `host_wait` the flat buffer has the exact size, which the host must read back
    from the device; without it the buffer has the capacity rows * width."""
    rows, width = indices.shape
    lengths = lengths.clamp(0, width)
    indptr = torch.zeros(rows + 1, dtype=torch.int32, device=indices.device)
    torch.cumsum(lengths, dim=0, out=indptr[1:])
    entries = int(indptr[-1].item()) if host_wait else rows * width
    flat = torch.empty(entries, dtype=torch.int32, device=indices.device)
    if rows > 0 and width > 0:
        pack_kernel[(rows, triton.cdiv(width, 256))](indices, lengths, indptr, flat, width, BLOCK=256)
    return flat, indptr
