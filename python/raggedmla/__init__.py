"""RaggedMLA: the sparse attention of DeepSeek-V4 inference on NVIDIA GPUs, AMD GPUs and CPUs.

Arrays come in from NumPy (with ml_dtypes' bfloat16), PyTorch, JAX, CuPy and anything that exports DLPack; nothing is
copied and no call waits for the device. Importing this package imports no framework.

    attention, merge_states                              the operator and the merge of partial results
    build_ragged, translate_topk, window_rows,
    compressed_rows, combine, copy_to_graph_buffers      row lists, made on the device
    quantize_rows, dequantize_rows, gather_rows          the paged cache
    Workspace, info, preload                             scratch memory, devices

`raggedmla.torch` registers PyTorch operators, `raggedmla.vllm` adapts vLLM; neither is imported here.
"""

from ._core import (
    DenseKv,
    DenseRows,
    PagedKv,
    PositionedQueries,
    RaggedRows,
    RangeRows,
    RequestQueries,
    Segment,
    Workspace,
    attention,
    attention_workspace_bytes,
    build_ragged,
    combine,
    compressed_rows,
    copy_to_graph_buffers,
    dequantize_rows,
    gather_rows,
    info,
    merge_states,
    preload,
    quantize_rows,
    translate_topk,
    window_rows,
)

__version__: str = info()["version"]

__all__ = [
    "DenseKv",
    "DenseRows",
    "PagedKv",
    "PositionedQueries",
    "RaggedRows",
    "RangeRows",
    "RequestQueries",
    "Segment",
    "Workspace",
    "attention",
    "attention_workspace_bytes",
    "build_ragged",
    "combine",
    "compressed_rows",
    "copy_to_graph_buffers",
    "dequantize_rows",
    "gather_rows",
    "info",
    "merge_states",
    "preload",
    "quantize_rows",
    "translate_topk",
    "window_rows",
]
