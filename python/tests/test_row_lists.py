"""The list operators through every framework. Their definition is tested in C++; here: arguments, forms, results."""

import numpy
import pytest

import raggedmla


def i32(*values):
    return numpy.array(values, numpy.int32)


def test_build_ragged(framework):
    indices = numpy.arange(16, dtype=numpy.int32).reshape(4, 4)
    a = framework.array
    flat, indptr = raggedmla.build_ragged(a(indices), a(i32(-3, 5, 2, 9)), row_limit=14)
    assert framework.numpy(indptr).tolist() == [0, 0, 4, 6, 10]
    assert flat.shape == (16,)
    assert framework.numpy(flat)[:10].tolist() == [4, 5, 6, 7, 8, 9, 12, 13, -1, -1]


def test_build_ragged_into_buffers(framework):
    indices = numpy.array([[5, 6], [7, 8]], numpy.int64)
    out = raggedmla.RaggedRows(framework.empty(6, numpy.int32), framework.empty(3, numpy.int32),
                               framework.empty(2, numpy.int32))
    result = raggedmla.build_ragged(framework.array(indices), framework.array(i32(1, 2)), out=out)
    assert result is out
    assert framework.numpy(out.indices).tolist() == [5, 7, 8, 77, 77, 77]
    assert framework.numpy(out.lengths).tolist() == [1, 2]


def test_no_rows(framework):
    flat, indptr = raggedmla.build_ragged(framework.array(numpy.zeros((0, 4), numpy.int32)),
                                          framework.array(numpy.zeros(0, numpy.int32)))
    assert framework.numpy(indptr).tolist() == [0] and flat.shape == (0,)


@pytest.mark.parametrize("form", ["dense", "ragged"])
def test_translate_topk(framework, form):
    a = framework.array
    topk = numpy.array([[0, 65, -1, 130], [3, -1, -1, -1], [1, 2, 3, 4]], numpy.int32)
    table = numpy.array([[7, 2, -1], [4, 5, 6]], numpy.int32)
    rows = raggedmla.translate_topk(a(topk), a(i32(0, 1, 1)), a(table), form=form,
                                    valid=a(numpy.array([True, True, False])))
    assert framework.numpy(rows.lengths).tolist() == [2, 1, 0]
    expected = [[7 * 64, 2 * 64 + 1], [4 * 64 + 3], []]
    indices = framework.numpy(rows.indices)
    if form == "dense":
        assert isinstance(rows, raggedmla.DenseRows)
        assert [list(indices[t][: len(e)]) for t, e in enumerate(expected)] == expected
    else:
        assert isinstance(rows, raggedmla.RaggedRows)
        assert framework.numpy(rows.indptr).tolist() == [0, 2, 3, 3]
        assert indices[:3].tolist() == sum(expected, [])


def test_window_and_compressed_rows(framework):
    a = framework.array
    queries = raggedmla.RequestQueries(a(i32(0, 2, 3)), a(i32(6, 300)))
    first, count = raggedmla.window_rows(queries, query_count=3, window=4)
    assert framework.numpy(first).tolist() == [1, 2, 296]
    assert framework.numpy(count).tolist() == [4, 4, 4]
    table = numpy.array([[1, 0], [3, 2]], numpy.int32)
    dense = raggedmla.window_rows(raggedmla.PositionedQueries(a(i32(1, -5, 64)), a(i32(0, 0, 1))), window=3,
                                  block_table=a(table), form="dense")
    assert framework.numpy(dense.lengths).tolist() == [2, 0, 3]
    assert framework.numpy(dense.indices).tolist() == [[64, 65, -1], [-1, -1, -1], [254, 255, 128]]
    first, count = raggedmla.compressed_rows(queries, query_count=3, ratio=128)
    assert framework.numpy(first).tolist() == [0, 0, 0]
    assert framework.numpy(count).tolist() == [0, 0, 2]


def test_combine(framework):
    a = framework.array
    queries = raggedmla.RequestQueries(a(i32(0, 2)), a(i32(9)))
    topk = numpy.array([[1, 0, -1], [0, 1, 7]], numpy.int32)
    rows = raggedmla.combine(a(topk), queries, a(i32(5)), query_count=2, rows_per_request=16, compressed_rows=4,
                             ratio=4, window=2, form="dense")
    assert framework.numpy(rows.lengths).tolist() == [4, 4]
    # sequence length 9, the last 5 tokens gathered: position p stands at row 4 + p - 4
    assert framework.numpy(rows.indices)[:, :4].tolist() == [[1, 0, 6, 7], [0, 1, 7, 8]]


def test_copy_to_graph_buffers(framework):
    source = raggedmla.RaggedRows(framework.array(i32(4, 5, 6, -9, -9)), framework.array(i32(0, 1, 3)))
    indices, indptr = framework.empty(8, numpy.int32), framework.empty(5, numpy.int32)
    raggedmla.copy_to_graph_buffers(source, indices, indptr)
    assert framework.numpy(indices).tolist() == [4, 5, 6, 77, 77, 77, 77, 77]
    assert framework.numpy(indptr).tolist() == [0, 1, 3, 3, 3]
