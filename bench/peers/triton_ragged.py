"""Times the Triton peers at the shapes of docs/performance.md, beside RaggedMLA where its Python package is installed.

    python bench/peers/triton_ragged.py --shapes prefill decode lists [--json FILE]

Every kernel is first checked at a small shape against fp64 PyTorch. Times are medians of replayed CUDA graphs over
rotating buffers; all numbers of one run are comparable with each other, and the ratio is peer time / RaggedMLA time.
"""

import argparse
import importlib
import json
import sys

import torch

import reference
import timing
import triton_kernels

SCALE = 512**-0.5
WINDOW = 128
DEVICE = "cuda"

#               name         heads  list length
PREFILL = [("flash-tp1", 64, 640), ("pro-tp1", 128, 1152), ("pro-tp8", 16, 1152), ("flash-tp8", 8, 640),
           ("hca", 16, 384)]
PREFILL_QUERIES, PREFILL_ROWS = 4096, 8192
#              heads, list length, batches
DECODE = [(64, 640, (1, 4, 16, 64, 128, 256)), (128, 1152, (1, 4, 16, 64, 128, 256)),
          (16, 1152, (1, 16, 64, 128, 256)), (8, 640, (1, 16, 64, 128, 256))]
LISTS = [(64, 512), (4096, 512), (8192, 1024)]


def import_ours():
    """The raggedmla package, or None."""
    try:
        return importlib.import_module("raggedmla")
    except ImportError:
        return None


def check(name, result, expected, tolerance=1e-2):
    error = reference.relative_error(result, expected)
    if not error < tolerance:
        sys.exit(f"{name} is wrong: relative error {error:.3g}; nothing was timed")


def random_bf16(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def csr(lists):
    counts = torch.tensor([0] + [len(entries) for entries in lists], device=DEVICE)
    return (torch.tensor(sum(lists, []), dtype=torch.int32, device=DEVICE),
            counts.cumsum(0).to(torch.int32))


def uniform_csr(queries, length, rows):
    """`length` random rows for every query."""
    indices = torch.randint(rows, (queries * length,), device=DEVICE, dtype=torch.int32)
    return indices, torch.arange(0, queries * length + 1, length, device=DEVICE, dtype=torch.int32)


# ---- prefill -------------------------------------------------------------------------------------------------------


def prefill_calls(ours):
    """name -> function(q, kv, indices, indptr, sink, out)."""
    calls = {state: lambda *a, state=state: triton_kernels.prefill(*a, SCALE, state) for state in triton_kernels.STATES}
    if ours:
        def ragged_mla(q, kv, indices, indptr, sink, out):
            segment = ours.Segment(ours.DenseKv(kv), ours.RaggedRows(indices, indptr))
            ours.attention(q, [segment], sink=sink, out=out)
        calls["raggedmla"] = ragged_mla
    return calls


def time_prefill(ours):
    calls = prefill_calls(ours)
    lists = [[3, 3, 5], [], [-1, 0, 99, 41], list(range(41))]
    q, kv, sink = random_bf16(4, 24, 512), random_bf16(42, 512), torch.randn(24, device=DEVICE)
    expected = reference.attention(q, [(kv, lists)], sink, SCALE)
    for name, call in calls.items():
        out = torch.full_like(q, float("nan"))
        call(q, kv, *csr(lists), sink, out)
        check(f"prefill {name}", out, expected)

    for shape, heads, length in PREFILL:
        sets = [(random_bf16(PREFILL_QUERIES, heads, 512), random_bf16(PREFILL_ROWS, 512),
                 *uniform_csr(PREFILL_QUERIES, length, PREFILL_ROWS), torch.randn(heads, device=DEVICE),
                 torch.empty(PREFILL_QUERIES, heads, 512, device=DEVICE, dtype=torch.bfloat16)) for _ in range(2)]
        times = {name: timing.graph_us([lambda s=s: call(*s) for s in sets], replays=5) for name, call in calls.items()}
        yield dict(suite="prefill", shape=shape, H=heads, K=length, T=PREFILL_QUERIES), times


# ---- decode --------------------------------------------------------------------------------------------------------


def decode_calls(ours):
    """name -> function(q, main_pages, main_list, extra_pages, extra_list, sink, out)."""
    calls = {"triton": lambda *a: triton_kernels.decode(*a, SCALE)}
    if ours:
        def ragged_mla(q, main_pages, main_list, extra_pages, extra_list, sink, out):
            segments = [ours.Segment(ours.PagedKv(main_pages), ours.RaggedRows(*main_list)),
                        ours.Segment(ours.PagedKv(extra_pages), ours.RaggedRows(*extra_list))]
            ours.attention(q, segments, sink=sink, out=out)
        calls["raggedmla"] = ragged_mla
    return calls


def time_decode(ours):
    calls = decode_calls(ours)
    main, extra = reference.make_pages(4, 64, DEVICE), reference.make_pages(30, 2, DEVICE)
    main_lists, extra_lists = [list(range(100, 228)), [], [7]], [[-1, 59, 60, 0], [], list(range(60))]
    q, sink = random_bf16(3, 24, 512), torch.randn(24, device=DEVICE)
    expected = reference.attention(
        q, [(reference.page_rows(main), main_lists), (reference.page_rows(extra), extra_lists)], sink, SCALE)
    for name, call in calls.items():
        out = torch.full_like(q, float("nan"))
        call(q, main, csr(main_lists), extra, csr(extra_lists), sink, out)
        check(f"decode {name}", out, expected)

    main, extra = reference.make_pages(1024, 64, DEVICE), reference.make_pages(8192, 64, DEVICE)
    for heads, length, batches in DECODE:
        sink = torch.randn(heads, device=DEVICE)
        for batch in batches:
            sets = [(random_bf16(batch, heads, 512), main, uniform_csr(batch, WINDOW, 1024 * 64), extra,
                     uniform_csr(batch, length - WINDOW, 8192 * 64), sink, random_bf16(batch, heads, 512))
                    for _ in range(timing.rotations(batch * length * 584))]
            times = {name: timing.graph_us([lambda s=s: call(*s) for s in sets]) for name, call in calls.items()}
            yield dict(suite="decode", shape=f"batch {batch}", H=heads, K=length, T=batch), times


# ---- lists ---------------------------------------------------------------------------------------------------------


def time_lists(ours):
    calls = {"host wait": lambda i, n: triton_kernels.build_ragged(i, n, host_wait=True),
             "no wait": lambda i, n: triton_kernels.build_ragged(i, n, host_wait=False)}
    if ours:
        calls["raggedmla"] = lambda i, n: ours.build_ragged(i, n)
    dense = torch.randint(1000, (5, 7), device=DEVICE, dtype=torch.int32)
    lengths = torch.tensor([-3, 5, 0, 7, 9], device=DEVICE, dtype=torch.int32)
    expected = torch.cat([dense[t, :n] for t, n in enumerate([0, 5, 0, 7, 7])])
    for name, call in calls.items():
        flat, indptr = call(dense, lengths)
        if indptr.tolist() != [0, 0, 5, 5, 12, 19] or not torch.equal(flat[:19], expected):
            sys.exit(f"lists {name} is wrong; nothing was timed")

    for queries, width in LISTS:
        sets = [(torch.randint(1 << 20, (queries, width), device=DEVICE, dtype=torch.int32),
                 torch.full((queries,), width, device=DEVICE, dtype=torch.int32))
                for _ in range(timing.rotations(queries * width * 8, most=32))]
        times = {}
        for name, call in calls.items():
            times[f"{name}, host busy"], times[f"{name}, eager"] = timing.eager_us(lambda: call(*sets[0]))
            if name != "host wait":  # a host wait cannot be captured
                times[f"{name}, graph"] = timing.graph_us([lambda s=s: call(*s) for s in sets])
        yield dict(suite="lists", shape=f"W {width}", T=queries), times


# ---- command -------------------------------------------------------------------------------------------------------


def ratios(times):
    """Peer time over ours, for every peer time that has a counterpart of ours."""
    result = {}
    for name, value in times.items():
        peer, _, kind = name.partition(", ")
        own = times.get(f"raggedmla, {kind}" if kind else "raggedmla")
        if own and peer != "raggedmla":
            result[name] = value / own
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    suites = {"prefill": time_prefill, "decode": time_decode, "lists": time_lists}
    parser.add_argument("--shapes", nargs="+", choices=suites, default=list(suites))
    parser.add_argument("--json", nargs="?", const="-", help="write all rows as JSON to FILE, or to stdout")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    ours = import_ours()
    if ours is None:
        print("raggedmla is not installed: only the peers are timed", file=sys.stderr)

    rows = []
    for suite in arguments.shapes:
        for shape, times in suites[suite](ours):
            rows.append({**shape, "us": times, "ratio": ratios(times)})
            label = " ".join(f"{key} {value}" for key, value in shape.items())
            over = {name: f" ({ratio:.1f}x)" for name, ratio in ratios(times).items()}
            cells = "  ".join(f"{name} {value:.1f}{over.get(name, '')}" for name, value in times.items())
            print(f"{label:48} us: {cells}", file=sys.stderr, flush=True)
    if arguments.json:
        report = dict(device=torch.cuda.get_device_name(), torch=torch.__version__, rows=rows)
        with sys.stdout if arguments.json == "-" else open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
