"""Attention and fp8 pages in plain PyTorch, fp64: what every timed kernel must agree with before it is timed."""

import torch

ROW_BYTES, SCALE_BYTES, NOPE, GROUP = 576, 8, 448, 64


def make_pages(page_count, rows_per_page, device, page_alignment=576):
    """Random fp8_ds_mla pages [P, rows, 584] u8 with a padded page stride; every value is finite and near one."""
    payload = rows_per_page * (ROW_BYTES + SCALE_BYTES)
    stride = -(-payload // page_alignment) * page_alignment
    slab = torch.zeros(page_count, stride, dtype=torch.uint8, device=device)
    slots = page_count * rows_per_page
    data = slab[:, : rows_per_page * ROW_BYTES].view(page_count, rows_per_page, ROW_BYTES)
    # sign and an exponent field of 5..8 (0.25 to 2) and any mantissa: no NaN code
    data[..., :NOPE] = (torch.randint(0, 2, (slots, NOPE), device=device, dtype=torch.uint8).mul(128)
                        + torch.randint(40, 72, (slots, NOPE), device=device, dtype=torch.uint8)
                        ).view(page_count, rows_per_page, NOPE)
    rope = torch.randn(slots, ROW_BYTES - NOPE >> 1, device=device).bfloat16().view(torch.uint8)
    data[..., NOPE:] = rope.view(page_count, rows_per_page, ROW_BYTES - NOPE)
    scales = slab[:, rows_per_page * ROW_BYTES : payload].view(page_count, rows_per_page, SCALE_BYTES)
    scales[..., :7] = torch.randint(125, 129, (page_count, rows_per_page, 7), device=device, dtype=torch.uint8)
    return slab.as_strided((page_count, rows_per_page, 584), (stride, 584, 1))


def page_rows(pages):
    """All rows of fp8 pages as bf16 [P * rows, 512]."""
    count, rows, _ = pages.shape
    slab = pages.as_strided((count, rows * (ROW_BYTES + SCALE_BYTES)), (pages.stride(0), 1))
    data = slab[:, : rows * ROW_BYTES].reshape(count * rows, ROW_BYTES)
    scales = slab[:, rows * ROW_BYTES :].reshape(count * rows, SCALE_BYTES)[:, :7]
    nope = data[:, :NOPE].contiguous().view(torch.float8_e4m3fn).float()
    nope = nope * torch.exp2(scales.float() - 127).repeat_interleave(GROUP, dim=1)
    return torch.cat([nope.bfloat16(), data[:, NOPE:].contiguous().view(torch.bfloat16)], dim=1)


def attention(q, rows_and_lists, sink, scale):
    """`rows_and_lists`: pairs of rows [N, 512] and one list of row numbers per query. Returns fp64 [T, H, 512]."""
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for t in range(q.shape[0]):
        chosen = []
        for rows, lists in rows_and_lists:
            index = torch.as_tensor(lists[t], device=q.device, dtype=torch.long)
            chosen.append(rows[index[(index >= 0) & (index < rows.shape[0])]].double())
        keys = torch.cat(chosen)
        if len(keys) == 0:
            continue
        scores = q[t].double() @ keys.T * scale
        if sink is not None:
            scores = torch.cat([scores, sink[: q.shape[1]].double()[:, None]], dim=1)
        out[t] = torch.softmax(scores, dim=1)[:, : len(keys)] @ keys
    return out


def relative_error(result, expected):
    """Norm of the difference over the norm of the expectation; infinite where a value is not finite."""
    if not torch.isfinite(result.float()).all():
        return float("inf")
    return float((result.double() - expected).norm() / expected.norm().clamp_min(1e-30))
