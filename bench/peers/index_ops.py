"""Row lists of a decode step made of PyTorch index operations and one packing kernel: how an engine without own
list kernels does it. Every function launches 5 to 12 kernels; `host_wait` sizes the packed list exactly, and the
host waits for that number."""

import torch

import triton_kernels


def slots_of(table, request_of_query, entries, rows_per_page):
    """Logical rows [T, W] of each query's request to cache slots through the block table; negative rows to -1."""
    safe = entries.clamp_min(0)
    columns = (safe // rows_per_page).clamp_max(table.shape[1] - 1)
    pages = table[request_of_query[:, None], columns]
    return torch.where(entries >= 0, pages * rows_per_page + safe % rows_per_page, -1).to(torch.int32)


def window_rows(positions, request_of_query, table, window=128, rows_per_page=64):
    """(slots [T, window], lengths [T])."""
    start = (positions - window + 1).clamp_min(0)
    rows = start[:, None] + torch.arange(window, device=positions.device)
    rows = torch.where(rows <= positions[:, None], rows, -1)
    return slots_of(table, request_of_query, rows, rows_per_page), (positions - start + 1).to(torch.int32)


def compressed_rows(positions, request_of_query, table, width, ratio=128, rows_per_page=2):
    """(slots [T, width], lengths [T])."""
    lengths = ((positions + 1) // ratio).clamp_max(width)
    rows = torch.arange(width, device=positions.device).expand(len(positions), width)
    rows = torch.where(rows < lengths[:, None], rows, -1)
    return slots_of(table, request_of_query, rows, rows_per_page), lengths.to(torch.int32)


def translate_topk(topk, request_of_query, table, host_wait, rows_per_page=64):
    """Local top-k [T, K] to a ragged list of slots."""
    lengths = (topk >= 0).sum(dim=1, dtype=torch.int32)
    return triton_kernels.build_ragged(slots_of(table, request_of_query, topk, rows_per_page), lengths, host_wait)


def copy_to_graph_buffers(ragged, buffers):
    """The whole capacity is copied: the true length is known on the device only."""
    for source, buffer in zip(ragged, buffers, strict=True):
        buffer[: source.numel()].copy_(source, non_blocking=True)
    return buffers
