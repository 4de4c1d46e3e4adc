"""PyTorch operators: `torch.ops.raggedmla.*`, safe in `torch.compile(fullgraph=True)` and in `torch.cuda.graph`.

Import this module to register them. Every operator exists twice: a functional one that makes its output, and one that
writes into arrays of the caller (`attention_out`, ...). The functions of this module are the operators.

Scratch memory is kept per device and stream outside of graphs; inside a capture it belongs to the graph.

A segment is passed flat, since operators take tensors only: `kv` (rows [N, 512] bf16, or pages), then either `indices`
[T, W] with optional `lengths` [T] (dense), or `indices` [capacity] with `indptr` [T + 1] (ragged). Range selections are
available through `raggedmla.attention`.
"""

import inspect

import torch
from torch import Tensor

from . import _core

__all__ = ["attention", "attention_out", "build_ragged", "build_ragged_out", "merge_states", "quantize_rows",
           "translate_topk", "translate_topk_out"]

_SCALE = 512**-0.5
_LIBRARY = torch.library.Library("raggedmla", "DEF")


def _operator(name=None, mutates=(), fake=lambda *args, **kwargs: None, signature=None):
    """Registers a function as torch.ops.raggedmla.<name>, its own name by default, with the schema that its signature
    (or the one given) says. `fake` makes outputs of the right shapes; an operator that only writes into its arguments
    needs none.

    Registered below autograd and without `torch.library.custom_op`, whose Python layers cost more than the call."""

    def register(function):
        known_as = name or function.__name__
        if signature is not None:
            function.__signature__ = signature
        _LIBRARY.define(known_as + torch.library.infer_schema(function, mutates_args=mutates))
        _LIBRARY.impl(known_as, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"raggedmla::{known_as}", fake, lib=_LIBRARY)
        operator = getattr(torch.ops.raggedmla, known_as).default
        operator.__doc__ = function.__doc__
        return operator

    return register


def _signature_after(function, outputs, returns):
    """The signature of `function` without its first `outputs` parameters, which are returned instead."""
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[outputs:], return_annotation=returns)


def _segment(pages_or_rows, indices, lengths, indptr, encoding):
    if pages_or_rows.dim() == 2 and pages_or_rows.dtype == torch.bfloat16:
        kv = _core.DenseKv(pages_or_rows)
    else:
        kv = _core.PagedKv(pages_or_rows, encoding=encoding)
    if indptr is not None:
        return (kv, _core.RaggedRows(indices, indptr))
    return (kv, _core.DenseRows(indices, lengths))


# ---- attention -----------------------------------------------------------------------------------------------------


def _attend(
    out: Tensor,
    lse: Tensor | None,
    q: Tensor,
    main_kv: Tensor,
    main_indices: Tensor,
    main_lengths: Tensor | None = None,
    main_indptr: Tensor | None = None,
    extra_kv: Tensor | None = None,
    extra_indices: Tensor | None = None,
    extra_lengths: Tensor | None = None,
    extra_indptr: Tensor | None = None,
    sink: Tensor | None = None,
    scale: float = _SCALE,
    inverse_rope_cos_sin: Tensor | None = None,
    inverse_rope_positions: Tensor | None = None,
    main_encoding: str = "ocp",
    extra_encoding: str = "ocp",
    batch_invariant: bool = False,
) -> None:
    """`raggedmla.attention` over one or two segments, into `out` [T, H, 512] and, if given, `lse` [T, H] f32."""
    segments = [_segment(main_kv, main_indices, main_lengths, main_indptr, main_encoding)]
    if extra_kv is not None:
        segments.append(_segment(extra_kv, extra_indices, extra_lengths, extra_indptr, extra_encoding))
    rope = None if inverse_rope_cos_sin is None else (inverse_rope_cos_sin, inverse_rope_positions)
    _core.attention(q, segments, sink, scale, out=out, lse=lse, inverse_rope=rope, batch_invariant=batch_invariant)


def _attention_outputs(q, *arguments):
    return q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)


def _attend_anew(q, *arguments):
    """`raggedmla.attention` over one or two segments; returns (out [T, H, 512] like q, lse [T, H] f32)."""
    out, lse = _attention_outputs(q)
    _attend(out, lse, q, *arguments)
    return out, lse


attention_out = _operator("attention_out", mutates=("out", "lse"))(_attend)
attention = _operator("attention", fake=_attention_outputs,
                      signature=_signature_after(_attend, outputs=2, returns=tuple[Tensor, Tensor]))(_attend_anew)


@_operator(fake=lambda out, lse, sink=None: (out.new_empty(out.shape[1:]), lse.new_empty(lse.shape[1:])))
def merge_states(partial_out: Tensor, partial_lse: Tensor, sink: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`raggedmla.merge_states`: [S, T, H, 512] and [S, T, H] to (out [T, H, 512], lse [T, H])."""
    return _core.merge_states(partial_out, partial_lse, sink, return_lse=True)


# ---- row lists -----------------------------------------------------------------------------------------------------


@_operator(mutates=("flat", "indptr"))
def build_ragged_out(flat: Tensor, indptr: Tensor, indices: Tensor, lengths: Tensor | None = None,
                     row_limit: int = -1) -> None:
    """`raggedmla.build_ragged` into flat i32 [>= T * W] and indptr i32 [T + 1]."""
    _core.build_ragged(indices, lengths, row_limit=row_limit, out=_core.RaggedRows(flat, indptr))


@_operator(fake=lambda indices, lengths=None, row_limit=-1: (
    indices.new_empty(indices.shape[0] * indices.shape[1], dtype=torch.int32),
    indices.new_empty(indices.shape[0] + 1, dtype=torch.int32)))
def build_ragged(indices: Tensor, lengths: Tensor | None = None, row_limit: int = -1) -> tuple[Tensor, Tensor]:
    """`raggedmla.build_ragged`: (flat i32 [T * W], indptr i32 [T + 1]). What lies behind indptr[T] is undefined."""
    rows = _core.build_ragged(indices, lengths, row_limit=row_limit)
    return rows.indices, rows.indptr


@_operator(mutates=("indices", "lengths_out"))
def translate_topk_out(indices: Tensor, lengths_out: Tensor, topk: Tensor, request_of_query: Tensor,
                       block_table: Tensor, rows_per_page: int = 64, valid: Tensor | None = None,
                       lengths: Tensor | None = None) -> None:
    """`raggedmla.translate_topk` into dense i32 [T, K] and i32 [T]."""
    _core.translate_topk(topk, request_of_query, block_table, rows_per_page=rows_per_page, valid=valid,
                         lengths=lengths, out=_core.DenseRows(indices, lengths_out))


@_operator(fake=lambda topk, *args, **kwargs: (
    topk.new_empty(topk.shape, dtype=torch.int32), topk.new_empty(topk.shape[:1], dtype=torch.int32)))
def translate_topk(topk: Tensor, request_of_query: Tensor, block_table: Tensor, rows_per_page: int = 64,
                   valid: Tensor | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`raggedmla.translate_topk` in dense form: (slots i32 [T, K], lengths i32 [T])."""
    rows = _core.translate_topk(topk, request_of_query, block_table, rows_per_page=rows_per_page, valid=valid,
                                lengths=lengths, form="dense")
    return rows.indices, rows.lengths


# ---- cache ---------------------------------------------------------------------------------------------------------


@_operator(mutates=("pages",))
def quantize_rows(pages: Tensor, rows: Tensor, slots: Tensor, encoding: str = "ocp", floor: str = "amax") -> None:
    """`raggedmla.quantize_rows`: rows [M, 512] bf16 into pages at slots [M], in place."""
    _core.quantize_rows(rows, slots, _core.PagedKv(pages, encoding=encoding), floor=floor)
