"""FlashMLA-shaped calls: the arguments and results of the `flash_mla` package's sparse functions, on RaggedMLA.

Not a build of FlashMLA: the same shapes and conventions, so that a caller can switch by changing an import. What is
limited there is not here: any number of heads, any list length. A query without a valid row has lse = +inf, as there.
"""

import math

import torch
from torch import Tensor

from . import _core

__all__ = ["flash_mla_sparse_fwd", "flash_mla_with_kvcache", "get_mla_metadata"]

VALUE_WIDTH = 512


def flash_mla_sparse_fwd(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    sm_scale: float,
    d_v: int = VALUE_WIDTH,
    attn_sink: Tensor | None = None,
    topk_length: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sparse prefill: q [T, H, 512] bf16, kv [N, 1, 512] bf16, indices [T, 1, K] i32 (invalid: < 0 or >= N).

    Returns out [T, H, 512], max_logits [T, H] and lse [T, H]: natural logarithm, without the sink, +inf for a query
    without a valid row.
    """
    _require_value_width("d_v", d_v)
    for name, tensor in (("q", q), ("kv", kv), ("indices", indices)):
        require_tensor(name, tensor, 3)
    out = torch.empty_like(q)
    lse = q.new_empty(q.shape[:2], dtype=torch.float32)
    max_logits = torch.empty_like(lse)
    segments = [(_core.DenseKv(kv.squeeze(1)), _core.DenseRows(indices.squeeze(1), topk_length))]
    _core.attention(q, segments, attn_sink, sm_scale, out=out, lse=lse, max_logits=max_logits)
    return out, max_logits, _empty_as_plus_inf(lse)


def flash_mla_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    block_table: Tensor | None = None,
    cache_seqlens: Tensor | None = None,
    head_dim_v: int = VALUE_WIDTH,
    tile_scheduler_metadata: object = None,
    num_splits: object = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = True,
    indices: Tensor | None = None,
    attn_sink: Tensor | None = None,
    extra_k_cache: Tensor | None = None,
    extra_indices_in_kvcache: Tensor | None = None,
    topk_length: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sparse decode: q [b, s, H, 512] bf16, k_cache [blocks, rows, 1, bytes] (fp8 pages, or bf16 with 512 columns),
    indices [b, s, K] i32 (slots), topk_length [b].

    Returns out [b, s, H, 512] and lse [b, H, s] (natural logarithm, without the sink, +inf for a query without a valid
    row). With explicit slots, `block_table`, `cache_seqlens` and `causal` have no meaning; nothing needs planning, so
    `tile_scheduler_metadata` and `num_splits` are ignored.
    """
    _require_value_width("head_dim_v", head_dim_v)
    if indices is None:
        raise NotImplementedError("flash_mla_with_kvcache: only the sparse call is offered: pass indices")
    if (extra_k_cache is None) != (extra_indices_in_kvcache is None):
        raise ValueError("extra_k_cache and extra_indices_in_kvcache go together: one of them is None")
    require_tensor("q", q, 4)
    batch, steps, heads, width = q.shape
    segments = [_page_segment("", k_cache, indices, topk_length)]
    if extra_k_cache is not None:
        segments.append(_page_segment("extra_", extra_k_cache, extra_indices_in_kvcache, extra_topk_length))
    queries = q.reshape(batch * steps, heads, width)
    out = torch.empty_like(queries)
    lse = torch.empty(batch * steps, heads, dtype=torch.float32, device=q.device)
    scale = width**-0.5 if softmax_scale is None else softmax_scale
    _core.attention(queries, segments, attn_sink, scale, out=out, lse=lse)
    lse = _empty_as_plus_inf(lse).view(batch, steps, heads).transpose(1, 2)
    return out.view(batch, steps, heads, width), lse


def get_mla_metadata(*args: object, **kwargs: object) -> tuple[object, None]:
    """Nothing needs planning: an object to hand to `flash_mla_with_kvcache`, which ignores it."""
    return object(), None


def require_tensor(name: str, value: object, *ranks: int) -> None:
    """Refuses what is no tensor, or has none of the given numbers of dimensions, before its shape is looked at."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is a {type(value).__qualname__}, expected a tensor")
    if ranks and value.dim() not in ranks:
        raise ValueError(f"{name} has {value.dim()} dimensions, expected {' or '.join(map(str, ranks))}")


def _page_segment(prefix, pages, indices, lengths):
    require_tensor(prefix + "k_cache", pages, 4)
    require_tensor(prefix + "indices", indices, 3)
    batch, steps, columns = indices.shape
    if lengths is not None and steps > 1:
        require_tensor(prefix + "topk_length", lengths, 1)
        lengths = lengths.repeat_interleave(steps, output_size=lengths.shape[0] * steps)
    return _core.PagedKv(pages.squeeze(2)), _core.DenseRows(indices.reshape(batch * steps, columns), lengths)


def _empty_as_plus_inf(lse: Tensor) -> Tensor:
    return lse.masked_fill_(lse == -math.inf, math.inf)


def _require_value_width(name: str, width: int) -> None:
    if width != VALUE_WIDTH:
        raise ValueError(f"{name} is {width}, expected {VALUE_WIDTH}")
