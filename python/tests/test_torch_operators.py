"""torch.ops.raggedmla: registered so that opcheck, torch.compile and out-variants work."""

import numpy
import pytest

import reference
from frameworks import bfloat16

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.library import opcheck  # noqa: E402

import raggedmla.torch as operators  # noqa: E402


@pytest.fixture
def tensors(torch_framework, rng):
    def bf16(*shape):
        return torch_framework.array(rng.standard_normal(shape).astype(numpy.float32).astype(bfloat16))

    a = torch_framework.array
    return {
        "q": bf16(3, 5, 512),
        "kv": bf16(40, 512),
        "indices": a(rng.integers(0, 40, (3, 7), dtype=numpy.int32)),
        "lengths": a(numpy.array([7, 0, 3], numpy.int32)),
        "sink": a(rng.standard_normal(5).astype(numpy.float32)),
        "topk": a(numpy.array([[0, 65, 3], [3, 2, 1], [1, 2, 3]], numpy.int32)),
        "request": a(numpy.array([0, 1, 1], numpy.int32)),
        "table": a(numpy.array([[7, 2], [4, 5]], numpy.int32)),
        "pages": a(numpy.zeros((3, 64, 584), numpy.uint8)),
        "slots": a(numpy.array([0, 70, 191], numpy.int64)),
    }


def test_opcheck(tensors):
    t = tensors
    opcheck(operators.attention, (t["q"], t["kv"], t["indices"], t["lengths"]), {"sink": t["sink"]})
    opcheck(operators.attention_out,
            (torch.empty_like(t["q"]), t["q"].new_empty(3, 5, dtype=torch.float32), t["q"], t["kv"], t["indices"]))
    opcheck(operators.merge_states, (torch.stack([t["q"], t["q"]]), t["q"].new_zeros(2, 3, 5, dtype=torch.float32)))
    opcheck(operators.build_ragged, (t["indices"],))
    opcheck(operators.build_ragged_out, (t["indices"].new_empty(21), t["indices"].new_empty(4), t["indices"]))
    opcheck(operators.translate_topk, (t["topk"], t["request"], t["table"]))
    opcheck(operators.translate_topk_out,
            (torch.empty_like(t["topk"]), t["topk"].new_empty(3), t["topk"], t["request"], t["table"]))
    opcheck(operators.quantize_rows, (t["pages"], t["kv"][:3], t["slots"]))


def layer(q, kv, indices, lengths, sink):
    """A piece of a model: lists and attention between ordinary operations."""
    flat, indptr = operators.build_ragged(indices, lengths)
    out, lse = operators.attention(q * 2, kv, flat, None, indptr, sink=sink)
    buffer = torch.empty_like(out)
    operators.attention_out(buffer, None, q * 2, kv, indices, lengths, sink=sink)
    return out + buffer, lse


def check_compiled(tensors, backend):
    arguments = [tensors[name] for name in ("q", "kv", "indices", "lengths", "sink")]
    result = torch.compile(layer, fullgraph=True, backend=backend)(*arguments)
    for value, wanted in zip(result, layer(*arguments), strict=True):
        torch.testing.assert_close(value, wanted)


def test_compile_fullgraph(tensors):
    check_compiled(tensors, "aot_eager")


def test_compile_fullgraph_with_inductor(cuda, tensors, monkeypatch):
    """On a GPU only: on a CPU inductor spends half a minute in the C++ compiler and shows nothing more."""
    if tensors["q"].device.type != "cuda":
        pytest.skip("for CUDA tensors")
    import torch._inductor.config

    monkeypatch.setattr(torch._inductor.config, "compile_threads", 1)  # no pool of processes for three small kernels
    check_compiled(tensors, "inductor")


def test_operator_computes_attention(torch_framework, tensors):
    t = tensors
    out, lse = operators.attention(t["q"], t["kv"], t["indices"], t["lengths"], sink=t["sink"])
    n = {name: torch_framework.numpy(value) for name, value in t.items()}
    lists = reference.lists_of_dense(n["indices"], n["lengths"])
    expected, expected_lse = reference.attention(n["q"], [(n["kv"], lists)], n["sink"])
    assert reference.relative_error(torch_framework.numpy(out), expected) < 5e-3
    numpy.testing.assert_allclose(torch_framework.numpy(lse), expected_lse, atol=1e-4)
