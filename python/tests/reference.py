"""The operators in a few lines of NumPy, fp64."""

import numpy

SCALE = 512**-0.5


def attention(q, sources_and_lists, sink=None, scale=SCALE):
    """`sources_and_lists`: pairs (rows [N, 512], one list of row numbers per query). Returns (out, lse)."""
    queries, heads, width = q.shape
    out = numpy.zeros((queries, heads, width))
    lse = numpy.full((queries, heads), -numpy.inf)
    for t in range(queries):
        keys = [rows[i] for rows, lists in sources_and_lists for i in lists[t] if 0 <= i < len(rows)]
        if not keys:
            continue
        keys = numpy.asarray(keys).astype(numpy.float64)
        z = q[t].astype(numpy.float64) @ keys.T * scale
        top = z.max(axis=1, keepdims=True)
        weights = numpy.exp(z - top)
        total = weights.sum(axis=1, keepdims=True)
        lse[t] = (top + numpy.log(total))[:, 0]
        if sink is not None:
            total = total + numpy.exp(sink[:heads, None].astype(numpy.float64) - top)
        out[t] = weights @ keys / total
    return out, lse


def lists_of_dense(indices, lengths):
    width = indices.shape[1]
    return [list(row[: min(max(int(n), 0), width)]) for row, n in zip(indices, lengths, strict=True)]


def relative_error(result, expected):
    difference = numpy.asarray(result).astype(numpy.float64) - expected
    return numpy.linalg.norm(difference) / max(numpy.linalg.norm(expected), 1e-30)


def decode_pages(pages, rows_per_page):
    """fp8_ds_mla pages [P, bytes] u8, OCP e4m3, to rows [P * rows_per_page, 512] fp64."""
    import ml_dtypes

    count = pages.shape[0]
    data = pages[:, : rows_per_page * 576].reshape(count * rows_per_page, 576)
    scales = pages[:, rows_per_page * 576 : rows_per_page * 584].reshape(count * rows_per_page, 8)[:, :7]
    nope = numpy.ascontiguousarray(data[:, :448]).view(ml_dtypes.float8_e4m3fn).astype(numpy.float64)
    nope *= numpy.repeat(2.0 ** (scales.astype(numpy.float64) - 127), 64, axis=1)
    rope = numpy.ascontiguousarray(data[:, 448:]).view(ml_dtypes.bfloat16).astype(numpy.float64)
    return numpy.concatenate([nope, rope], axis=1)
