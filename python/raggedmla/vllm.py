"""vLLM adapter: functions with the names, arguments and results of vLLM's ROCm sparse-MLA helpers, on RaggedMLA.

With the environment variable RAGGEDMLA_VLLM=1, vLLM's plugin loader calls `register` (entry point
`vllm.general_plugins`), which puts these functions in the place of vLLM's. See docs/vllm.md.

All functions take GPU tensors as vLLM passes them, and CPU tensors too. None waits for the device.
Written against a description of the interface and tested against a stand-in with the same signatures; it has not been
run inside a vLLM server.
"""

import functools

import torch
from torch import Tensor

from . import _core
from ._vllm_install import installed, register, uninstall
from .flash_mla import flash_mla_sparse_fwd, flash_mla_with_kvcache, get_mla_metadata, require_tensor

__all__ = [
    "_copy_ragged_to_graph_buffers",
    "_rocm_sparse_attn_decode_ragged_triton",
    "_rocm_sparse_attn_decode_triton",
    "_rocm_sparse_attn_prefill_ragged_triton",
    "_rocm_sparse_attn_prefill_triton",
    "build_ragged_indices_from_dense",
    "compute_global_topk_ragged_indices_and_indptr",
    "flash_mla_sparse_fwd",
    "flash_mla_with_kvcache",
    "get_mla_metadata",
    "installed",
    "register",
    "rocm_sparse_attn_decode",
    "rocm_sparse_attn_prefill",
    "uninstall",
]

ROW_WIDTH = 512  # DeepSeek-V4: 448 + 64 channels, all of them value

# ---- row lists -----------------------------------------------------------------------------------------------------


def build_ragged_indices_from_dense(indices: Tensor, lengths: Tensor, num_rows: int = -1) -> tuple[Tensor, Tensor]:
    """(flat i32 [rows * width], indptr i32 [rows + 1]); the flat buffer is never trimmed to the true length.

    indices [rows, ...] is taken as 2-D; lengths, one a row and of any shape, are clamped to [0, width]; with
    num_rows >= 0 ids outside [0, num_rows) become -1."""
    rows = _core.build_ragged(_two_dimensional(indices), _one_dimensional(lengths), row_limit=num_rows)
    return rows.indices, rows.indptr


def compute_global_topk_ragged_indices_and_indptr(
    topk_indices: Tensor,
    token_to_req_indices: Tensor,
    block_table: Tensor,
    block_size: int,
    is_valid_token: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Request-local top-k entries to slots: (ragged i32 [T * K], indptr i32 [T + 1], lens i32 [T]).

    A row's length is its number of entries >= 0, 0 for invalid tokens. One launch."""
    rows = _core.translate_topk(_two_dimensional(topk_indices), token_to_req_indices, block_table,
                                rows_per_page=block_size, valid=is_valid_token, form="ragged")
    assert isinstance(rows, _core.RaggedRows)
    return rows.indices, rows.indptr, rows.lengths


def _copy_ragged_to_graph_buffers(
    ragged_indices: Tensor,
    ragged_indptr: Tensor,
    ragged_indices_buffer: Tensor,
    ragged_indptr_buffer: Tensor,
    num_rows: int,
    max_entries_per_row: int,
) -> tuple[Tensor, Tensor]:
    """Copies a list to where a captured graph reads it. Returns views of the buffers: the first
    max(num_rows * max_entries_per_row, 1) entries (on gfx950 as many as the source has) and num_rows + 1 offsets.

    Only what indptr covers is copied; what lies behind it is stale, as it was with the copy of everything."""
    capacity = max(num_rows * max_entries_per_row, 1)
    indptr = ragged_indptr_buffer[: num_rows + 1]
    _core.copy_to_graph_buffers(_core.RaggedRows(ragged_indices, ragged_indptr[: num_rows + 1]),
                                ragged_indices_buffer[:capacity], indptr)
    if _architecture(ragged_indices.device) == "gfx950":
        capacity = max(ragged_indices.numel(), 1)
    return ragged_indices_buffer[:capacity], indptr


# ---- prefill over a flat bf16 workspace ------------------------------------------------------------------------------


def rocm_sparse_attn_prefill(
    q: Tensor,
    kv: Tensor,
    indices: Tensor | None,
    topk_length: Tensor | None,
    scale: float,
    head_dim: int,
    nope_head_dim: int,
    rope_head_dim: int,
    attn_sink: Tensor | None,
    output: Tensor,
    ragged_indices: Tensor | None = None,
    ragged_indptr: Tensor | None = None,
) -> None:
    """Writes `output` [T, H, 512]. Ragged lists win over dense ones; without topk_length a row's length is its number
    of entries >= 0."""
    _require_row_width(nope_head_dim, rope_head_dim)
    rows = _rows(indices, topk_length, ragged_indices, ragged_indptr)
    _core.attention(q, [(_flat_kv(kv), rows)], attn_sink, scale, out=output)


def _rocm_sparse_attn_prefill_ragged_triton(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    indptr: Tensor,
    scale: float,
    attn_sink: Tensor | None,
    nope_head_dim: int,
    rope_head_dim: int,
    out: Tensor | None = None,
) -> Tensor:
    """`rocm_sparse_attn_prefill` over a ragged list; returns the output."""
    out = _output(q, out)
    rocm_sparse_attn_prefill(q, kv, None, None, scale, ROW_WIDTH, nope_head_dim, rope_head_dim, attn_sink, out,
                             indices, indptr)
    return out


def _rocm_sparse_attn_prefill_triton(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    scale: float,
    attn_sink: Tensor | None,
    nope_head_dim: int,
    rope_head_dim: int,
    topk_length: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`rocm_sparse_attn_prefill` over a dense list; returns the output."""
    out = _output(q, out)
    rocm_sparse_attn_prefill(q, kv, indices, topk_length, scale, ROW_WIDTH, nope_head_dim, rope_head_dim, attn_sink,
                             out)
    return out


# ---- decode over paged fp8 caches ------------------------------------------------------------------------------------


def rocm_sparse_attn_decode(
    q: Tensor,
    kv_cache: Tensor | None,
    swa_k_cache: Tensor,
    swa_only: bool,
    topk_indices: Tensor | None,
    topk_lens: Tensor | None,
    swa_indices: Tensor | None,
    swa_lens: Tensor | None,
    swa_ragged_indices: Tensor | None,
    swa_ragged_indptr: Tensor | None,
    topk_ragged_indices: Tensor | None,
    topk_ragged_indptr: Tensor | None,
    attn_sink: Tensor | None,
    scale: float,
    head_dim: int,
    nope_head_dim: int,
    rope_head_dim: int,
    output: Tensor,
    extra_cache_nan_free: bool = False,
    adaptive_splits: bool = False,
    inv_rope_positions: Tensor | None = None,
    inv_rope_cos_sin_cache: Tensor | None = None,
    output_mxfp8: Tensor | None = None,
) -> int:
    """Attention over the sliding window and, unless `swa_only`, the compressed rows, into `output`.

    Returns how many leading rows were rotated back: all T when inv_rope_* are given, otherwise 0. `adaptive_splits` and
    `extra_cache_nan_free` are choices of vLLM's kernel and ignored: splits follow from shapes, and memory that a query
    did not select never reaches its result."""
    _rocm_sparse_attn_decode_triton(
        q, swa_k_cache, swa_indices, swa_lens, scale, attn_sink, nope_head_dim, rope_head_dim,
        None if swa_only else kv_cache, topk_indices, topk_lens, swa_ragged_indices, swa_ragged_indptr,
        topk_ragged_indices, topk_ragged_indptr, output, inv_rope_positions=inv_rope_positions,
        inv_rope_cos_sin_cache=inv_rope_cos_sin_cache, out_mxfp8=output_mxfp8)
    return 0 if inv_rope_positions is None else q.shape[0]


def _rocm_sparse_attn_decode_ragged_triton(
    q: Tensor,
    main_cache: Tensor,
    main_indices: Tensor,
    main_indptr: Tensor,
    scale: float,
    attn_sink: Tensor | None,
    nope_head_dim: int,
    rope_head_dim: int,
    extra_cache: Tensor | None = None,
    extra_indices: Tensor | None = None,
    extra_indptr: Tensor | None = None,
    out: Tensor | None = None,
    extra_cache_nan_free: bool = False,
    adaptive_splits: bool = False,
    inv_rope_positions: Tensor | None = None,
    inv_rope_cos_sin_cache: Tensor | None = None,
    out_mxfp8: Tensor | None = None,
) -> Tensor:
    """Decode over ragged lists of a main and an optional extra cache; returns the output."""
    return _rocm_sparse_attn_decode_triton(
        q, main_cache, None, None, scale, attn_sink, nope_head_dim, rope_head_dim, extra_cache,
        main_ragged_indices=main_indices, main_ragged_indptr=main_indptr, extra_ragged_indices=extra_indices,
        extra_ragged_indptr=extra_indptr, out=out, inv_rope_positions=inv_rope_positions,
        inv_rope_cos_sin_cache=inv_rope_cos_sin_cache, out_mxfp8=out_mxfp8)


def _rocm_sparse_attn_decode_triton(
    q: Tensor,
    main_cache: Tensor,
    main_indices: Tensor | None,
    main_lengths: Tensor | None,
    scale: float,
    attn_sink: Tensor | None,
    nope_head_dim: int,
    rope_head_dim: int,
    extra_cache: Tensor | None = None,
    extra_indices: Tensor | None = None,
    extra_lengths: Tensor | None = None,
    main_ragged_indices: Tensor | None = None,
    main_ragged_indptr: Tensor | None = None,
    extra_ragged_indices: Tensor | None = None,
    extra_ragged_indptr: Tensor | None = None,
    out: Tensor | None = None,
    extra_cache_nan_free: bool = False,
    adaptive_splits: bool = False,
    inv_rope_positions: Tensor | None = None,
    inv_rope_cos_sin_cache: Tensor | None = None,
    out_mxfp8: Tensor | None = None,
) -> Tensor:
    """Decode over dense lists (ragged ones win where given); returns the output."""
    _require_row_width(nope_head_dim, rope_head_dim)
    if out_mxfp8 is not None:
        raise NotImplementedError("MXFP8 output is not offered: leave out_mxfp8 or output_mxfp8 None")
    out = _output(q, out)
    # gfx942's window writer stores e4m3fnuz, the writer of compressed rows OCP e4m3 on every card.
    main_encoding = "fnuz" if _architecture(q.device) == "gfx942" else "ocp"
    segments = [(_core.PagedKv(main_cache, encoding=main_encoding),
                 _rows(main_indices, main_lengths, main_ragged_indices, main_ragged_indptr))]
    if extra_cache is not None:
        segments.append((_core.PagedKv(extra_cache),
                         _rows(extra_indices, extra_lengths, extra_ragged_indices, extra_ragged_indptr)))
    rope = None
    if inv_rope_positions is not None:
        if inv_rope_cos_sin_cache is None:
            raise ValueError("inv_rope_positions is given without inv_rope_cos_sin_cache")
        rope = (inv_rope_cos_sin_cache.float(), inv_rope_positions)  # .float() of f32 is the tensor itself
    _core.attention(q, segments, attn_sink, scale, out=out, inverse_rope=rope)
    return out


# ---- what vLLM's arguments are to us ---------------------------------------------------------------------------------


def _rows(indices, lengths, ragged_indices, ragged_indptr):
    """The row selection of a pair of lists: the ragged one where there is one. Packing is never needed."""
    if ragged_indices is not None and ragged_indptr is not None:
        return _core.RaggedRows(ragged_indices, ragged_indptr)
    if indices is None:
        raise ValueError("neither dense nor ragged indices are given")
    indices = _two_dimensional(indices)
    lengths = (indices >= 0).sum(dim=1, dtype=torch.int32) if lengths is None else _one_dimensional(lengths)
    return _core.DenseRows(indices, lengths)


def _output(q: Tensor, out: Tensor | None) -> Tensor:
    require_tensor("q", q)
    return torch.empty_like(q) if out is None else out


def _two_dimensional(indices: Tensor) -> Tensor:
    require_tensor("indices", indices)
    if indices.dim() == 0:
        raise ValueError("indices has no dimension, expected [rows, ...]")
    return indices if indices.dim() == 2 else indices[:, None].flatten(1)


def _one_dimensional(lengths: Tensor) -> Tensor:
    require_tensor("lengths", lengths)
    return lengths if lengths.dim() == 1 else lengths.reshape(-1)


def _flat_kv(kv: Tensor) -> _core.DenseKv:
    require_tensor("kv", kv, 2, 3)
    return _core.DenseKv(kv.squeeze(1) if kv.dim() == 3 else kv)


def _require_row_width(nope_head_dim: int, rope_head_dim: int) -> None:
    if nope_head_dim + rope_head_dim != ROW_WIDTH:
        raise NotImplementedError(
            f"rows of {nope_head_dim} + {rope_head_dim} channels are not offered: DeepSeek-V4's have 448 + 64")


@functools.cache
def _architecture(device: torch.device) -> str:
    """'gfx942' and the like on AMD GPUs, '' elsewhere."""
    if device.type != "cuda" or torch.version.hip is None:
        return ""
    return torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
