"""RaggedMLA on a CPU with NumPy: quantise rows into a paged cache, attend to a window and a top-k selection, check.

    pip install . numpy ml_dtypes
    python examples/numpy_cpu.py
"""

import ml_dtypes
import numpy

import raggedmla

TOKENS, QUERIES, HEADS, PAGE, TOPK, WINDOW = 600, 4, 16, 64, 96, 128
rng = numpy.random.default_rng(0)


def random_bf16(*shape):
    return rng.standard_normal(shape).astype(numpy.float32).astype(ml_dtypes.bfloat16)


# One request's cache: logical row r is row r % 64 of page block_table[r // 64]. Pages of 64 fp8 rows take 37,440 bytes.
columns = -(-TOKENS // PAGE)
block_table = rng.permutation(columns).astype(numpy.int32)[None, :]
pages = numpy.zeros((columns, 37440), numpy.uint8)
cache = raggedmla.PagedKv(pages, rows_per_page=PAGE)
tokens = numpy.arange(TOKENS)
raggedmla.quantize_rows(random_bf16(TOKENS, 512), block_table[0, tokens // PAGE] * PAGE + tokens % PAGE, cache)

# The last four tokens of the request ask: each reads its sliding window and the rows that a top-k kernel chose.
queries = raggedmla.RequestQueries(numpy.array([0, QUERIES], numpy.int32), numpy.array([TOKENS], numpy.int32))
window = raggedmla.window_rows(queries, query_count=QUERIES, window=WINDOW, block_table=block_table, form="dense")
topk = numpy.stack([rng.permutation(TOKENS - WINDOW)[:TOPK] for _ in range(QUERIES)]).astype(numpy.int32)
chosen = raggedmla.translate_topk(topk, numpy.zeros(QUERIES, numpy.int32), block_table)

q, sink = random_bf16(QUERIES, HEADS, 512), numpy.zeros(HEADS, numpy.float32)
out, lse = raggedmla.attention(q, [(cache, window), (cache, chosen)], sink, return_lse=True)

# The same in plain NumPy, on the dequantised rows.
slots = numpy.concatenate([window.indices, chosen.indices], axis=1)
rows = raggedmla.dequantize_rows(cache, slots.ravel()).astype(numpy.float64).reshape(QUERIES, -1, 512)
scores = numpy.einsum("thd,tkd->thk", q.astype(numpy.float64), rows) * 512**-0.5
weights = numpy.exp(scores)
expected = numpy.einsum("thk,tkd->thd", weights, rows) / (weights.sum(axis=2) + numpy.exp(sink))[:, :, None]
error = numpy.linalg.norm(out.astype(numpy.float64) - expected) / numpy.linalg.norm(expected)

print(f"{QUERIES} queries, {HEADS} heads, {WINDOW} + {TOPK} rows each")
print("lse of head 0:", numpy.round(lse[:, 0], 4))
print(f"relative error against NumPy in fp64: {error:.1e}")
assert error < 5e-3
