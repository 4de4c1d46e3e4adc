"""What a query costs as the context grows, for the three kinds of layer of DeepSeek-V4: a picture.

    python examples/plot_context_cost.py [OUT.png]     (needs matplotlib; uses a GPU through PyTorch if there is one)

Sliding window only: constant. Top-k of compressed rows (ratio 4): constant once the context holds that many. All
compressed rows (ratio 128): grows with the context, 128 times slower than full attention would.
"""

import sys
import time

import matplotlib
import ml_dtypes
import numpy

import raggedmla

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

BATCH, HEADS, WINDOW, TOPK = 4, 16, 128, 1024
CONTEXTS = [2**k for k in range(8, 21)]

try:
    import torch

    torch = torch if torch.cuda.is_available() else None
except ImportError:
    torch = None


def array(values):
    if torch is None:
        return values
    if values.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(values.view(numpy.int16)).view(torch.bfloat16).cuda()
    return torch.from_numpy(values).cuda()


def median_ms(call, repeats=15):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        if torch is not None:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return sorted(times)[repeats // 2] * 1e3


rng = numpy.random.default_rng(0)
pool = array(rng.standard_normal((CONTEXTS[-1] // 128 + WINDOW, 512)).astype(numpy.float32).astype(ml_dtypes.bfloat16))
q = array(rng.standard_normal((BATCH, HEADS, 512)).astype(numpy.float32).astype(ml_dtypes.bfloat16))
kv = raggedmla.DenseKv(pool)


def cost(rows):
    """Milliseconds of one attention call in which every query reads `rows` rows."""
    indices = array(rng.integers(0, pool.shape[0], (BATCH, rows), dtype=numpy.int32))
    segment = raggedmla.Segment(kv, raggedmla.DenseRows(indices))
    raggedmla.attention(q, segment)
    return median_ms(lambda: raggedmla.attention(q, segment))


curves = {
    "sliding window (128 rows)": [cost(min(n, WINDOW)) for n in CONTEXTS],
    "window + top-1024 of ratio-4 rows": [cost(min(n, WINDOW) + min(n // 4, TOPK)) for n in CONTEXTS],
    "window + all ratio-128 rows": [cost(min(n, WINDOW) + n // 128) for n in CONTEXTS],
}

figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
for label, times in curves.items():
    axis.plot(CONTEXTS, times, marker="o", label=label)
axis.set_xscale("log", base=2)
axis.set_xticks(CONTEXTS[::2], [f"{n // 1024}k" if n >= 1024 else str(n) for n in CONTEXTS[::2]])
axis.set_ylim(bottom=0)
axis.set_xlabel("context length (tokens)")
axis.set_ylabel(f"ms per call ({BATCH} queries, {HEADS} heads)")
name = torch.cuda.get_device_name() if torch is not None else raggedmla.info()["devices"][0]["name"]
axis.set_title(f"Attention of one layer on {name}")
axis.legend()
out = sys.argv[1] if len(sys.argv) > 1 else "context_cost.png"
figure.savefig(out, dpi=120)
print(f"wrote {out}")
