"""attention, merge_states and the cache operators through every framework."""

import numpy
import pytest

import raggedmla
import reference
from frameworks import bfloat16


def random_bf16(rng, *shape):
    return rng.standard_normal(shape).astype(numpy.float32).astype(bfloat16)


def test_dense_rows(framework, rng):
    q, kv = random_bf16(rng, 4, 5, 512), random_bf16(rng, 40, 512)
    indices = rng.integers(-3, 43, (4, 37), dtype=numpy.int32)
    lengths = numpy.array([37, 0, -2, 20], numpy.int32)
    sink = rng.standard_normal(9).astype(numpy.float32)  # longer than H: the first H count
    expected, expected_lse = reference.attention(q, [(kv, reference.lists_of_dense(indices, lengths))], sink)
    a = framework.array
    segment = raggedmla.Segment(raggedmla.DenseKv(a(kv)), raggedmla.DenseRows(a(indices), a(lengths)))
    out, lse = raggedmla.attention(a(q), segment, a(sink), return_lse=True)
    assert reference.relative_error(framework.numpy(out), expected) < 5e-3
    numpy.testing.assert_allclose(framework.numpy(lse), expected_lse, atol=1e-4)


@pytest.mark.parametrize("index_type", [numpy.int32, numpy.int64])
def test_ragged_rows_and_two_segments(framework, rng, index_type):
    q, first, second = random_bf16(rng, 3, 16, 512), random_bf16(rng, 20, 512), random_bf16(rng, 30, 512)
    lists = [[[0, 19, 19], [], [7]], [[29], [], [1, 2, 3, -1, 30]]]
    expected, _ = reference.attention(q, [(first, lists[0]), (second, lists[1])])

    def ragged(rows):
        indptr = numpy.cumsum([0] + [len(row) for row in rows]).astype(index_type)
        indices = numpy.array(sum(rows, []) + [999] * 5, index_type)  # a stale tail
        return raggedmla.RaggedRows(framework.array(indices), framework.array(indptr))

    segments = [(raggedmla.DenseKv(framework.array(kv)), ragged(rows))
                for kv, rows in zip([first, second], lists, strict=True)]
    out = raggedmla.attention(framework.array(q), segments)
    result = framework.numpy(out)
    assert reference.relative_error(result, expected) < 5e-3
    assert not result[1].any()


def test_range_rows_equal_their_list(framework, rng):
    q, kv = random_bf16(rng, 6, 4, 512), random_bf16(rng, 64, 512)
    a = framework.array
    first, count = numpy.array([0, 0, 1, 30, 31, 90], numpy.int32), numpy.array([1, 2, 2, 4, 4, 9], numpy.int32)
    rows = raggedmla.RangeRows(a(first), a(count), a(numpy.array([0, 3, 6], numpy.int32)),
                               row_base=a(numpy.array([10, 0], numpy.int32)))
    base = [10, 10, 10, 0, 0, 0]
    lists = [[b + f + i for i in range(c)] for b, f, c in zip(base, first, count, strict=True)]
    expected, _ = reference.attention(q, [(kv, lists)])
    out = raggedmla.attention(a(q), [(raggedmla.DenseKv(a(kv)), rows)])
    assert reference.relative_error(framework.numpy(out), expected) < 5e-3


def test_strided_arrays_and_f32_output(framework, rng):
    q, kv = random_bf16(rng, 3, 8, 512), random_bf16(rng, 20, 512)
    indices = rng.integers(0, 20, (3, 11), dtype=numpy.int32)
    a = framework.array
    wide_q, wide_kv = framework.empty((3, 8, 1024), bfloat16), framework.empty((20, 520), bfloat16)
    wide_indices = framework.empty((3, 17), numpy.int32)
    wide_q[:, :, 512:], wide_kv[:, :512], wide_indices[:, 2:13] = a(q), a(kv), a(indices)
    wide_out = framework.empty((3, 8, 640), numpy.float32)
    lengths = a(numpy.array([11, 0, 5, 0, 11, 0], numpy.int64))[::2]
    result = raggedmla.attention(
        wide_q[:, :, 512:],
        [(raggedmla.DenseKv(wide_kv[:, :512]), raggedmla.DenseRows(wide_indices[:, 2:13], lengths))],
        out=wide_out[:, :, 64:576])
    expected, _ = reference.attention(q, [(kv, reference.lists_of_dense(indices, [11, 5, 11]))])
    out = framework.numpy(wide_out)
    assert reference.relative_error(out[:, :, 64:576], expected) < 5e-3
    assert (out[:, :, :64] == 77).all() and (out[:, :, 576:] == 77).all()
    assert result.shape == (3, 8, 512)


def test_quantised_pages(framework, rng):
    rows, slots = random_bf16(rng, 50, 512), rng.permutation(3 * 64)[:50].astype(numpy.int64)
    pages = numpy.zeros((3, 37440), numpy.uint8)
    a = framework.array
    cache_pages = a(pages)
    cache = raggedmla.PagedKv(cache_pages, rows_per_page=64)
    raggedmla.quantize_rows(a(rows), a(slots), cache)
    decoded = reference.decode_pages(framework.numpy(cache_pages), 64)
    assert reference.relative_error(decoded[slots], rows.astype(numpy.float64)) < 0.05
    back = framework.numpy(raggedmla.dequantize_rows(cache, a(numpy.append(slots, -1))))
    numpy.testing.assert_array_equal(back[:-1].astype(numpy.float64), decoded[slots])
    assert not back[-1].any()

    q = random_bf16(rng, 2, 16, 512)
    indices = numpy.stack([slots[:25], slots[25:]]).astype(numpy.int32)
    expected, _ = reference.attention(q, [(decoded, indices)])
    out = raggedmla.attention(a(q), [(cache, raggedmla.DenseRows(a(indices)))])
    assert reference.relative_error(framework.numpy(out), expected) < 5e-3


def test_gather_rows(framework, rng):
    pages = random_bf16(rng, 5, 4, 512)
    table, first, count = numpy.array([[4, 0], [2, 9]], numpy.int32), numpy.array([3, 0]), numpy.array([3, 6])
    out = framework.empty((2, 8, 512), bfloat16)
    a = framework.array
    raggedmla.gather_rows(raggedmla.PagedKv(a(pages)), a(table), a(first), a(count), out, out_offset=1)
    result, flat = framework.numpy(out), pages.reshape(20, 512)
    numpy.testing.assert_array_equal(result[0, 1:4], flat[[19, 0, 1]])
    numpy.testing.assert_array_equal(result[1, 1:5], flat[[8, 9, 10, 11]])
    assert not result[1, 5:7].any()  # page 9 does not exist


def test_merge_states(framework, rng):
    q, kv = random_bf16(rng, 3, 4, 512), random_bf16(rng, 30, 512)
    sink = rng.standard_normal(4).astype(numpy.float32)
    lists = [[0, 1, 2, 3], [], [9, 20, 29]]
    halves = [[[i for i in row if i % 2 == part] for row in lists] for part in range(2)]
    states = [reference.attention(q, [(kv, half)]) for half in halves]
    expected, expected_lse = reference.attention(q, [(kv, lists)], sink)
    partial_out = numpy.stack([out for out, _ in states]).astype(numpy.float32)
    partial_lse = numpy.stack([lse for _, lse in states]).astype(numpy.float32)
    a = framework.array
    out, lse = raggedmla.merge_states(a(partial_out), a(partial_lse), a(sink), return_lse=True)
    assert reference.relative_error(framework.numpy(out), expected) < 1e-5
    numpy.testing.assert_allclose(framework.numpy(lse), expected_lse, atol=1e-4)


def test_inverse_rope(framework, rng):
    q, kv = random_bf16(rng, 2, 4, 512), random_bf16(rng, 10, 512)
    positions = numpy.array([3, -1], numpy.int64)  # outside the table: left as it is
    angles = rng.standard_normal((5, 32))
    table = numpy.concatenate([numpy.cos(angles), numpy.sin(angles)], axis=1).astype(numpy.float32)
    indices = rng.integers(0, 10, (2, 6), dtype=numpy.int32)
    expected, _ = reference.attention(q, [(kv, indices)])
    even, odd = expected[0, :, 448::2].copy(), expected[0, :, 449::2].copy()
    expected[0, :, 448::2] = even * table[3, :32] + odd * table[3, 32:]
    expected[0, :, 449::2] = odd * table[3, :32] - even * table[3, 32:]
    a = framework.array
    out = raggedmla.attention(a(q), [(raggedmla.DenseKv(a(kv)), raggedmla.DenseRows(a(indices)))],
                              inverse_rope=(a(table), a(positions)))
    assert reference.relative_error(framework.numpy(out), expected) < 5e-3
