"""Modules with the names and signatures of vLLM's, for the adapter's tests. The functions compute what the interface
promises, in plain PyTorch."""

import sys
import types

import torch


def build_ragged_indices_from_dense(indices, lengths, num_rows=-1):
    indices = indices.reshape(indices.shape[0], -1)
    rows, width = indices.shape
    lengths = lengths.reshape(-1).clamp(0, width)
    indptr = torch.zeros(rows + 1, dtype=torch.int32)
    indptr[1:] = lengths.cumsum(0)
    flat = torch.zeros(rows * width, dtype=torch.int32)
    for row in range(rows):
        entries = indices[row, : lengths[row]]
        if num_rows >= 0:
            entries = torch.where((entries >= 0) & (entries < num_rows), entries, -1)
        flat[indptr[row] : indptr[row + 1]] = entries
    return flat, indptr


def rocm_sparse_attn_prefill(q, kv, indices, topk_length, scale, head_dim, nope_head_dim, rope_head_dim, attn_sink,
                             output, ragged_indices=None, ragged_indptr=None):
    raise AssertionError("vLLM's own function was called")


def rocm_sparse_attn_decode(q, kv_cache, swa_k_cache, swa_only, topk_indices, topk_lens, swa_indices, swa_lens,
                            swa_ragged_indices, swa_ragged_indptr, topk_ragged_indices, topk_ragged_indptr, attn_sink,
                            scale, head_dim, nope_head_dim, rope_head_dim, output, extra_cache_nan_free=False,
                            adaptive_splits=False, inv_rope_positions=None, inv_rope_cos_sin_cache=None,
                            output_mxfp8=None):
    raise AssertionError("vLLM's own function was called")


def _rocm_sparse_attn_prefill_triton(q, kv, indices, scale, attn_sink, nope_head_dim, rope_head_dim, block_h,
                                     topk_length=None, out=None):
    """Another signature than the adapter knows: must be left alone."""


def _copy_ragged_to_graph_buffers(ragged_indices, ragged_indptr, ragged_indices_buffer, ragged_indptr_buffer, num_rows,
                                  max_entries_per_row):
    indptr = ragged_indptr_buffer[: num_rows + 1]
    indptr.copy_(ragged_indptr)
    indices = ragged_indices_buffer[: max(num_rows * max_entries_per_row, 1)]
    indices[: ragged_indices.numel()].copy_(ragged_indices)
    return indices, indptr


def compute_global_topk_ragged_indices_and_indptr(topk_indices, token_to_req_indices, block_table, block_size,
                                                  is_valid_token):
    lens = (topk_indices >= 0).sum(1).int() * is_valid_token.int()
    indptr = torch.zeros(len(lens) + 1, dtype=torch.int32)
    indptr[1:] = lens.cumsum(0)
    flat = torch.zeros(topk_indices.numel(), dtype=torch.int32)
    for t, count in enumerate(lens.tolist()):
        entries = topk_indices[t][topk_indices[t] >= 0][:count].long()
        pages = block_table[token_to_req_indices[t], entries // block_size]
        flat[indptr[t] : indptr[t + 1]] = pages * block_size + entries % block_size
    return flat, indptr, lens


def install(monkeypatch):
    """Puts modules into sys.modules under vLLM's names, one of which imported a function from another by name."""
    ops = types.ModuleType("vllm.v1.attention.ops.rocm_aiter_mla_sparse")
    for function in (build_ragged_indices_from_dense, rocm_sparse_attn_prefill, rocm_sparse_attn_decode,
                     _rocm_sparse_attn_prefill_triton):
        setattr(ops, function.__name__, function)
    model = types.ModuleType("vllm.models.deepseek_v4.amd.rocm")
    model._copy_ragged_to_graph_buffers = _copy_ragged_to_graph_buffers
    model.compute_global_topk_ragged_indices_and_indptr = compute_global_topk_ragged_indices_and_indptr
    model.build_ragged_indices_from_dense = build_ragged_indices_from_dense
    for module in (ops, model):
        parts = module.__name__.split(".")
        for depth in range(1, len(parts)):
            package = ".".join(parts[:depth])
            monkeypatch.setitem(sys.modules, package, sys.modules.get(package, types.ModuleType(package)))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return ops, model
