"""Wrong arguments, read-only arrays, other frameworks, the package itself."""

import subprocess
import sys

import numpy
import pytest

import raggedmla
from frameworks import bfloat16


def call(**changes):
    """A right call with some arguments changed."""
    arguments = {
        "q": numpy.zeros((2, 4, 512), bfloat16),
        "kv": numpy.zeros((8, 512), bfloat16),
        "indices": numpy.zeros((2, 3), numpy.int32),
        "lengths": numpy.zeros(2, numpy.int32),
        "sink": None,
        "out": None,
    } | changes
    segment = (raggedmla.DenseKv(arguments["kv"]), raggedmla.DenseRows(arguments["indices"], arguments["lengths"]))
    return raggedmla.attention(arguments["q"], [segment], arguments["sink"], out=arguments["out"],
                               **{name: changes[name] for name in ("kernel", "workspace") if name in changes})


WRONG = {
    "q of another width": (ValueError, r"attention: q has shape \[2, 4, 500\]",
                           {"q": numpy.zeros((2, 4, 500), bfloat16)}),
    "q of another rank": (ValueError, "q has shape", {"q": numpy.zeros((2, 512), bfloat16)}),
    "q f32": (ValueError, "q is f32, expected bf16", {"q": numpy.zeros((2, 4, 512), numpy.float32)}),
    "q f16": (ValueError, "q is float16, expected", {"q": numpy.zeros((2, 4, 512), numpy.float16)}),
    "indices f32": (ValueError, "indices is f32", {"indices": numpy.zeros((2, 3), numpy.float32)}),
    "lengths of another size": (ValueError, "lengths has shape", {"lengths": numpy.zeros(3, numpy.int32)}),
    "short sink": (ValueError, "sink", {"sink": numpy.zeros(3, numpy.float32)}),
    "q a list": (TypeError, "q is a list, expected an array", {"q": [1, 2]}),
    "out of another shape": (ValueError, "out has shape", {"out": numpy.zeros((2, 5, 512), bfloat16)}),
    "unknown kernel": (ValueError, "kernel is 'fast', expected", {"kernel": "fast"}),
    "five dimensions": (ValueError, "q has 5 dimensions", {"q": numpy.zeros((1, 1, 1, 1, 1), bfloat16)}),
    "workspace of another type": (TypeError, "workspace|Workspace|cast", {"workspace": 3}),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_wrong_arguments(case):
    error, message, changes = case
    with pytest.raises(error, match=message):
        call(**changes)


def test_right_arguments():
    assert call().shape == (2, 4, 512)


def test_read_only_arrays():
    q = numpy.zeros((2, 4, 512), bfloat16)
    q.flags.writeable = False
    assert call(q=q).dtype == bfloat16
    with pytest.raises(ValueError, match="out is read-only"):
        call(out=q)


def test_wrong_objects():
    with pytest.raises(TypeError, match="expected DenseKv or PagedKv"):
        raggedmla.Segment(numpy.zeros((8, 512), bfloat16), raggedmla.DenseRows(numpy.zeros((2, 3), numpy.int32)))
    with pytest.raises(ValueError, match="encoding is 'e5m2'"):
        raggedmla.PagedKv(numpy.zeros((2, 64, 584), numpy.uint8), encoding="e5m2")
    with pytest.raises(ValueError, match="rows_per_page is needed"):
        raggedmla.PagedKv(numpy.zeros((2, 37440), numpy.uint8))


def test_jax_arrays():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "cpu":
        pytest.skip("JAX runs on a GPU here: it cannot make the output")
    q = jax.numpy.ones((2, 4, 512), jax.numpy.bfloat16)
    kv = jax.numpy.ones((8, 512), jax.numpy.bfloat16)
    indices = jax.numpy.zeros((2, 3), jax.numpy.int32)
    out = raggedmla.attention(q, [(raggedmla.DenseKv(kv), raggedmla.DenseRows(indices))])
    assert isinstance(out, numpy.ndarray) and (out == 1).all()


def test_cupy_arrays():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.is_available() or "cuda" not in raggedmla.info()["backends"]:
        pytest.skip("no CUDA device or no CUDA backend")
    indices = cupy.arange(6, dtype=cupy.int32).reshape(2, 3)
    with cupy.cuda.Stream(non_blocking=True):
        flat, indptr = raggedmla.build_ragged(indices, cupy.asarray([1, 3], dtype=cupy.int32))
        assert indptr.get().tolist() == [0, 1, 4] and flat.get()[:4].tolist() == [0, 3, 4, 5]


def test_import_brings_no_framework():
    code = "import sys, raggedmla; print([m for m in ('torch', 'numpy', 'jax', 'cupy', 'vllm') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_info():
    info = raggedmla.info()
    assert info["version"] == raggedmla.__version__
    assert "reference" in info["backends"] and info["devices"][0]["device"] == "cpu"


def test_every_public_function_says_what_it_takes():
    for name in raggedmla.__all__:
        assert getattr(raggedmla, name).__doc__, name


def test_explicit_stream_is_taken_and_others_refused():
    indices = numpy.zeros((1, 2), numpy.int32)
    raggedmla.build_ragged(indices, stream=0)
    with pytest.raises(TypeError, match="stream is a str, expected"):
        raggedmla.build_ragged(indices, stream="default")


def test_scratch_depends_on_the_whole_schedule():
    q, out = numpy.zeros((2, 4, 512), bfloat16), numpy.zeros((2, 4, 512), bfloat16)
    rows = raggedmla.DenseRows(numpy.zeros((2, 3), numpy.int32), numpy.zeros(2, numpy.int32))
    segments = [(raggedmla.DenseKv(numpy.zeros((8, 512), bfloat16)), rows)]
    assert raggedmla.attention_workspace_bytes(q, segments, out, expected_overlap=0.8) >= 0
    with pytest.raises(TypeError, match="expected_overlap"):
        raggedmla.attention_workspace_bytes(q, segments, out, expected_overlap="much")
