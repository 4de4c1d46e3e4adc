"""Host time of single calls from Python: until the call returns, on an otherwise idle GPU (or on the CPU, no rows).

"No queries" is the call without a kernel launch: Python, checks and schedule. One launch by PyTorch is there for scale.

    python bench/python_host_cost.py [--json FILE]
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import raggedmla
import raggedmla.vllm as vllm

BATCH, CHUNK = 64, 50


def calls(device):
    """name -> function. On a CPU there are no queries, so that what remains is the call itself."""
    queries = BATCH if device == "cuda" else 0

    def int32(*shape):
        return torch.zeros(shape, dtype=torch.int32, device=device)

    pages = torch.zeros(256, 64, 584, dtype=torch.uint8, device=device)
    q = torch.zeros(queries, 16, 512, dtype=torch.bfloat16, device=device)
    out, sink = torch.empty_like(q), torch.zeros(16, device=device)
    window, topk = int32(queries, 128), int32(queries, 1024)
    lengths, request, table = torch.full_like(int32(queries), 100), int32(queries), int32(64, 256)
    ragged = raggedmla.RaggedRows(int32(queries * 128), int32(queries + 1))
    dense = raggedmla.DenseRows(int32(queries, 1024), int32(queries))
    workspace = raggedmla.Workspace()

    def segments():
        return [raggedmla.Segment(raggedmla.PagedKv(pages), raggedmla.DenseRows(window, lengths)),
                raggedmla.Segment(raggedmla.PagedKv(pages), raggedmla.DenseRows(topk, lengths))]

    kept = segments()
    no_q, no_out, no_rows = q[:0], out[:0], raggedmla.DenseRows(window[:0], lengths[:0])
    none = [raggedmla.Segment(raggedmla.PagedKv(pages), no_rows)] * 2
    counter = torch.zeros(1, device=device)
    return {
        "attention, no queries": lambda: raggedmla.attention(no_q, none, sink, out=no_out, workspace=workspace),
        "PyTorch: add_ of one element": lambda: counter.add_(1),
        "attention, two segments, kept": lambda: raggedmla.attention(q, kept, sink, out=out, workspace=workspace),
        "attention, two segments, made per call":
            lambda: raggedmla.attention(q, segments(), sink, out=out, workspace=workspace),
        "attention, default workspace": lambda: raggedmla.attention(q, kept, sink, out=out),
        "raggedmla.vllm, decode over dense lists": lambda: vllm.rocm_sparse_attn_decode(
            q, pages, pages, False, topk, lengths, window, lengths, None, None, None, None, sink, 512**-0.5, 512, 448,
            64, out),
        "build_ragged": lambda: raggedmla.build_ragged(window, lengths, out=ragged, workspace=workspace),
        "build_ragged, output made": lambda: raggedmla.build_ragged(window, lengths, workspace=workspace),
        "translate_topk": lambda: raggedmla.translate_topk(topk, request, table, out=dense, workspace=workspace),
    }


def host_us(call, device):
    times = []
    for _ in range(40):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CHUNK):
            call()
        times.append((time.perf_counter() - begin) / CHUNK)
    return statistics.median(times) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    times = {name: host_us(call, device) for name, call in calls(device).items()}
    for name, value in times.items():
        print(f"{name:40} {value:6.2f} us")
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": device, "us": times}, indent=1) + "\n")


if __name__ == "__main__":
    main()
