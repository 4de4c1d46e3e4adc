"""The vLLM and FlashMLA adapters, against a stand-in with the same signatures (no vLLM server is involved)."""

import logging
import math

import numpy
import pytest

import reference
from frameworks import bfloat16

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import raggedmla.vllm as adapter  # noqa: E402
import vllm_stand_in  # noqa: E402

SCALE = 512**-0.5
LAYOUT = (512, 448, 64)


@pytest.fixture
def data(torch_framework, rng):
    return Data(torch_framework, rng)


class Data:
    """A few queries over a sliding-window cache of fp8 pages and a compressed cache of two-row pages."""

    def __init__(self, framework, rng):
        self.framework, self.rng = framework, rng
        self.q_numpy = self.bf16(3, 6, 512)
        self.sink_numpy = rng.standard_normal(9).astype(numpy.float32)
        self.q, self.sink = framework.array(self.q_numpy), framework.array(self.sink_numpy)

    def bf16(self, *shape):
        return self.rng.standard_normal(shape).astype(numpy.float32).astype(bfloat16)

    def pages(self, count, rows, stride):
        """(tensor as engines pass it, its rows)."""
        import raggedmla

        slab = self.framework.array(numpy.zeros((count, stride), numpy.uint8))
        slots = self.framework.array(numpy.arange(count * rows))
        raggedmla.quantize_rows(self.framework.array(self.bf16(count * rows, 512)), slots,
                                raggedmla.PagedKv(slab, rows_per_page=rows))
        view = slab.as_strided((count, rows, 584), (stride, 584, 1))
        return view, reference.decode_pages(self.framework.numpy(slab), rows)

    def error(self, result, sources_and_lists, sink=True):
        expected, _ = reference.attention(self.q_numpy, sources_and_lists, self.sink_numpy if sink else None)
        return reference.relative_error(self.framework.numpy(result), expected)

    def i32(self, values):
        return self.framework.array(numpy.array(values, numpy.int32))


def test_build_ragged_indices_from_dense(data):
    indices = data.rng.integers(-2, 12, (4, 1, 5), dtype=numpy.int32)
    lengths = numpy.array([[5], [-1], [9], [2]], numpy.int32)
    expected_flat, expected_indptr = vllm_stand_in.build_ragged_indices_from_dense(
        torch.from_numpy(indices), torch.from_numpy(lengths), 10)
    flat, indptr = adapter.build_ragged_indices_from_dense(data.framework.array(indices),
                                                           data.framework.array(lengths), 10)
    assert flat.shape == (20,) and indptr.tolist() == expected_indptr.tolist()
    assert flat[: indptr[-1]].tolist() == expected_flat[: expected_indptr[-1]].tolist()
    flat, indptr = adapter.build_ragged_indices_from_dense(data.i32(numpy.zeros((0, 5))), data.i32(numpy.zeros(0)))
    assert flat.numel() == 0 and indptr.tolist() == [0]


def test_compute_global_topk(data):
    topk = numpy.array([[5, 130, -1], [0, 1, 2], [9, 3, 200]], numpy.int32)
    arguments = [torch.from_numpy(topk), torch.tensor([1, 0, 1]), torch.tensor([[3, 8, 1, 0], [7, 5, 2, 6]]), 64,
                 torch.tensor([True, False, True])]
    expected = vllm_stand_in.compute_global_topk_ragged_indices_and_indptr(*arguments)
    device = data.q.device
    flat, indptr, lens = adapter.compute_global_topk_ragged_indices_and_indptr(
        *[x.to(device) if isinstance(x, torch.Tensor) else x for x in arguments])
    assert flat.shape == (9,) and lens.tolist() == expected[2].tolist() and indptr.tolist() == expected[1].tolist()
    assert flat[: indptr[-1]].tolist() == expected[0][: indptr[-1]].tolist()


def test_copy_to_graph_buffers(data):
    indices, indptr = data.i32([4, 5, 6, 0, 0, 0]), data.i32([0, 1, 3])
    buffer, offsets = data.i32([-7] * 20), data.i32([0] * 9)
    view, indptr_view = adapter._copy_ragged_to_graph_buffers(indices, indptr, buffer, offsets, 2, 5)
    assert view.data_ptr() == buffer.data_ptr() and view.shape == (10,) and view[:3].tolist() == [4, 5, 6]
    assert indptr_view.data_ptr() == offsets.data_ptr() and indptr_view.tolist() == [0, 1, 3]
    view, _ = adapter._copy_ragged_to_graph_buffers(data.i32([]), data.i32([0]), buffer, offsets, 0, 5)
    assert view.shape == (1,)


@pytest.mark.parametrize("form", ["dense", "dense without lengths", "ragged"])
def test_prefill(data, form):
    kv = data.bf16(30, 512)
    indices = data.rng.integers(0, 30, (3, 7), dtype=numpy.int32)
    lengths = numpy.array([7, 0, 4], numpy.int32)
    lists = reference.lists_of_dense(indices, lengths)
    output = torch.full_like(data.q, math.nan)
    flat_kv = data.framework.array(kv)[:, None, :]
    if form == "ragged":
        ragged = adapter.build_ragged_indices_from_dense(data.i32(indices), data.i32(lengths))
        adapter.rocm_sparse_attn_prefill(data.q, flat_kv, None, None, SCALE, *LAYOUT, data.sink, output, *ragged)
    elif form == "dense":
        adapter.rocm_sparse_attn_prefill(data.q, flat_kv, data.i32(indices)[:, None, :], data.i32(lengths), SCALE,
                                         *LAYOUT, data.sink, output)
    else:
        for row, length in zip(indices, lengths, strict=True):
            row[length:] = -1
        adapter.rocm_sparse_attn_prefill(data.q, flat_kv, data.i32(indices), None, SCALE, *LAYOUT, data.sink, output)
    assert data.error(output, [(kv, lists)]) < 5e-3


def test_prefill_by_kernel_names(data):
    kv = data.bf16(30, 512)
    indices = data.rng.integers(0, 30, (3, 7), dtype=numpy.int32)
    flat, indptr = adapter.build_ragged_indices_from_dense(data.i32(indices), data.i32([7, 7, 7]))
    rows = data.framework.array(kv)
    for out in (
        adapter._rocm_sparse_attn_prefill_ragged_triton(data.q, rows, flat, indptr, SCALE, None, 448, 64),
        adapter._rocm_sparse_attn_prefill_triton(data.q, rows, data.i32(indices), SCALE, None, 448, 64),
    ):
        assert data.error(out, [(kv, indices)], sink=False) < 5e-3


@pytest.mark.parametrize("form", ["dense", "ragged"])
def test_decode(data, form):
    window_pages, window_rows = data.pages(3, 64, 37440)
    extra_pages, extra_rows = data.pages(20, 2, 1728)
    window, extra = (data.rng.integers(-1, n, (3, 9), dtype=numpy.int32) for n in (192, 40))
    window_lengths, extra_lengths = [9, 3, 0], [2, 9, 0]
    lists = [reference.lists_of_dense(window, window_lengths), reference.lists_of_dense(extra, extra_lengths)]
    output = torch.full_like(data.q, math.nan)
    dense = (data.i32(extra)[:, None, :], data.i32(extra_lengths), data.i32(window)[:, None, :],
             data.i32(window_lengths))
    ragged = (None, None, None, None)
    if form == "ragged":
        ragged = (*adapter.build_ragged_indices_from_dense(dense[2], dense[3]),
                  *adapter.build_ragged_indices_from_dense(dense[0], dense[1]))
    rotated = adapter.rocm_sparse_attn_decode(data.q, extra_pages, window_pages, False, *dense, *ragged, data.sink,
                                              SCALE, *LAYOUT, output)
    assert rotated == 0
    assert data.error(output, list(zip([window_rows, extra_rows], lists, strict=True))) < 5e-3

    adapter.rocm_sparse_attn_decode(data.q, extra_pages, window_pages, True, *dense, *ragged, data.sink, SCALE,
                                    *LAYOUT, output)
    assert data.error(output, [(window_rows, lists[0])]) < 5e-3


def test_decode_rotates_back(data):
    pages, _ = data.pages(3, 64, 37440)
    indices = data.i32(data.rng.integers(0, 192, (3, 9), dtype=numpy.int32))
    flat, indptr = adapter.build_ragged_indices_from_dense(indices, data.i32([9, 9, 9]))
    plain = adapter._rocm_sparse_attn_decode_ragged_triton(data.q, pages, flat, indptr, SCALE, None, 448, 64)
    table = torch.cat([torch.zeros(4, 32), torch.ones(4, 32)], dim=1).to(data.q.device)  # a quarter turn
    turned = torch.empty_like(data.q)
    rotated = adapter.rocm_sparse_attn_decode(data.q, None, pages, True, None, None, indices, data.i32([9, 9, 9]),
                                              None, None, None, None, None, SCALE, *LAYOUT, turned,
                                              inv_rope_positions=data.i32([0, 1, 2]), inv_rope_cos_sin_cache=table)
    assert rotated == 3
    torch.testing.assert_close(turned[..., :448], plain[..., :448])
    torch.testing.assert_close(turned[..., 448::2], plain[..., 449::2])
    torch.testing.assert_close(turned[..., 449::2], -plain[..., 448::2])


def test_what_is_not_offered(data):
    with pytest.raises(NotImplementedError, match="512 \\+ 64"):
        adapter._rocm_sparse_attn_prefill_triton(data.q, data.q[0], data.i32([[0]] * 3), SCALE, None, 512, 64)
    with pytest.raises(ValueError, match="neither dense nor ragged"):
        adapter.rocm_sparse_attn_prefill(data.q, data.q[0], None, None, SCALE, *LAYOUT, None, data.q)


def test_wrong_arguments(data):
    """Refused before their shapes are looked at, with a message that names them."""
    q, indices, lengths = data.q, data.i32([[0]] * 3), data.i32([1] * 3)
    pages, _ = data.pages(1, 64, 37440)
    rest = (SCALE, None, 448, 64)
    for error, message, call in (
        (TypeError, "q is a NoneType", lambda: adapter._rocm_sparse_attn_prefill_triton(None, q[0], indices, *rest)),
        (TypeError, "kv is a list", lambda: adapter._rocm_sparse_attn_prefill_triton(q, [], indices, *rest)),
        (ValueError, "kv has 1 dim", lambda: adapter._rocm_sparse_attn_prefill_triton(q, q[0, 0], indices, *rest)),
        (TypeError, "indices is a list", lambda: adapter._rocm_sparse_attn_prefill_triton(q, q[0], [[0]], *rest)),
        (ValueError, "indices has no dim", lambda: adapter.build_ragged_indices_from_dense(indices[0, 0], lengths)),
        (TypeError, "lengths is a NoneType", lambda: adapter.build_ragged_indices_from_dense(indices, None)),
        (ValueError, "lengths is f32", lambda: adapter.build_ragged_indices_from_dense(indices, lengths.float())),
        (TypeError, "pages is a NoneType",
         lambda: adapter._rocm_sparse_attn_decode_triton(q, None, indices, lengths, *rest)),
        (ValueError, "without inv_rope_cos_sin_cache", lambda: adapter._rocm_sparse_attn_decode_triton(
            q, pages, indices, lengths, *rest, inv_rope_positions=lengths)),
        (ValueError, "q has 2 dimensions", lambda: adapter.flash_mla_sparse_fwd(q[0], q[:, :1], indices, SCALE)),
        (TypeError, "kv is a NoneType", lambda: adapter.flash_mla_sparse_fwd(q, None, indices, SCALE)),
        (ValueError, "d_v is 576", lambda: adapter.flash_mla_sparse_fwd(q, q[:, :1], indices[None], SCALE, 576)),
        (ValueError, "q has 3 dimensions", lambda: adapter.flash_mla_with_kvcache(q, pages, indices=indices)),
        (ValueError, "k_cache has 3 dimensions",
         lambda: adapter.flash_mla_with_kvcache(q[None], pages, indices=indices[None])),
        (ValueError, "extra_k_cache and extra_indices_in_kvcache", lambda: adapter.flash_mla_with_kvcache(
            q[None], pages[:, :, None], indices=indices[None], extra_k_cache=pages)),
    ):
        with pytest.raises(error, match=message):
            call()


def test_flash_mla_prefill(data):
    kv = data.bf16(30, 512)
    indices = data.rng.integers(-1, 31, (3, 1, 7), dtype=numpy.int32)
    lengths = [7, 0, 3]
    out, max_logits, lse = adapter.flash_mla_sparse_fwd(data.q, data.framework.array(kv)[:, None], data.i32(indices),
                                                        SCALE, attn_sink=data.sink, topk_length=data.i32(lengths))
    lists = reference.lists_of_dense(indices[:, 0], lengths)
    assert data.error(out, [(kv, lists)]) < 5e-3
    _, expected_lse = reference.attention(data.q_numpy, [(kv, lists)])
    expected_lse[numpy.isinf(expected_lse)] = math.inf
    numpy.testing.assert_allclose(data.framework.numpy(lse), expected_lse, atol=1e-4)
    assert (max_logits[1] == -math.inf).all() and (max_logits[0] <= lse[0]).all()


def test_flash_mla_decode(data):
    pages, rows = data.pages(3, 64, 37440)
    indices = data.rng.integers(-1, 192, (1, 3, 9), dtype=numpy.int32)
    metadata, splits = adapter.get_mla_metadata(torch.zeros(1), 3, 1)
    out, lse = adapter.flash_mla_with_kvcache(
        data.q[None], pages[:, :, None, :], None, None, 512, metadata, splits, is_fp8_kvcache=True,
        indices=data.i32(indices), attn_sink=data.sink, topk_length=data.i32([8]))
    assert out.shape == (1, 3, 6, 512) and lse.shape == (1, 6, 3)
    assert data.error(out[0], [(rows, reference.lists_of_dense(indices[0], [8, 8, 8]))]) < 5e-3


# ---- installation ----------------------------------------------------------------------------------------------------


def test_nothing_happens_without_the_variable(monkeypatch):
    ops, _ = vllm_stand_in.install(monkeypatch)
    monkeypatch.delenv("RAGGEDMLA_VLLM", raising=False)
    adapter.register()
    assert ops.rocm_sparse_attn_prefill is vllm_stand_in.rocm_sparse_attn_prefill


def test_install_and_uninstall(monkeypatch, caplog):
    ops, model = vllm_stand_in.install(monkeypatch)
    monkeypatch.setenv("RAGGEDMLA_VLLM", "1")
    with caplog.at_level(logging.WARNING, "raggedmla.vllm"):
        adapter.register()
    try:
        assert ops.rocm_sparse_attn_prefill is adapter.rocm_sparse_attn_prefill
        assert model._copy_ragged_to_graph_buffers is adapter._copy_ragged_to_graph_buffers
        assert model.build_ragged_indices_from_dense is adapter.build_ragged_indices_from_dense  # imported by name
        assert ops._rocm_sparse_attn_prefill_triton is vllm_stand_in._rocm_sparse_attn_prefill_triton
        assert len(caplog.records) == 1
        line = caplog.records[0].getMessage()
        assert "replaced build_ragged_indices_from_dense, rocm_sparse_attn_prefill, " in line
        assert "_rocm_sparse_attn_prefill_triton has another signature (argument 8 is block_h)" in line
        assert "_rocm_sparse_attn_decode_triton does not exist in this version" in line
        assert "vllm.v1.attention.ops.rocm_aiter_mla_sparse.rocm_sparse_attn_decode" in adapter.installed()
    finally:
        adapter.uninstall()
    assert ops.rocm_sparse_attn_prefill is vllm_stand_in.rocm_sparse_attn_prefill
    assert model.build_ragged_indices_from_dense is vllm_stand_in.build_ragged_indices_from_dense
    assert adapter.installed() == []


def test_install_without_vllm(monkeypatch, caplog):
    monkeypatch.setenv("RAGGEDMLA_VLLM", "1")
    with caplog.at_level(logging.WARNING, "raggedmla.vllm"):
        adapter.register()
    assert "replaced nothing" in caplog.text and "cannot be imported" in caplog.text
