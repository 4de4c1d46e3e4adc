"""Memory, threads, scratch."""

import gc
import resource
import threading

import numpy

import raggedmla
import reference
from frameworks import bfloat16


def inputs(rng, queries=2, heads=4):
    q = rng.standard_normal((queries, heads, 512)).astype(numpy.float32).astype(bfloat16)
    kv = rng.standard_normal((50, 512)).astype(numpy.float32).astype(bfloat16)
    return q, kv, rng.integers(0, 50, (queries, 9), dtype=numpy.int32)


def test_no_memory_growth_over_10000_calls(framework, rng):
    q, kv, indices = (framework.array(x) for x in inputs(rng, queries=1, heads=1))
    lengths = framework.array(numpy.array([2], numpy.int32))
    out = framework.empty((1, 1, 512), bfloat16)

    def calls(count):
        for _ in range(count):
            rows = raggedmla.build_ragged(indices, lengths)
            raggedmla.attention(q, [raggedmla.Segment(raggedmla.DenseKv(kv), rows)], out=out)
        framework.synchronize()
        gc.collect()

    def device_bytes():
        return framework.torch.cuda.memory_reserved() if framework.name == "torch-cuda" else 0

    calls(1000)
    objects, device = len(gc.get_objects()), device_bytes()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(10_000)
    assert len(gc.get_objects()) <= objects + 10
    assert device_bytes() == device
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss <= resident + 1024  # KiB: less than 0.1 a call


def test_arrays_live_as_long_as_their_views(framework, rng):
    q, kv, indices = inputs(rng)
    rows = raggedmla.DenseRows(framework.array(indices.copy()))
    source = raggedmla.DenseKv(framework.array(kv.copy()))
    segment = raggedmla.Segment(source, rows)
    del rows, source
    gc.collect()
    filler = [framework.empty((50, 512), bfloat16) for _ in range(20)]
    out = raggedmla.attention(framework.array(q), [segment])
    expected, _ = reference.attention(q, [(kv, indices)])
    assert reference.relative_error(framework.numpy(out), expected) < 5e-3
    assert len(filler) == 20


def test_threads(framework, rng):
    """Many threads at once, each with its own lists, some with scratch of their own."""
    q, kv, _ = inputs(rng)
    failures = []

    def work(seed):
        own = numpy.random.default_rng(seed)
        workspace = raggedmla.Workspace() if seed % 2 else None
        for _ in range(20):
            indices = own.integers(0, 50, (2, 9), dtype=numpy.int32)
            expected, _ = reference.attention(q, [(kv, indices)])
            rows = raggedmla.DenseRows(framework.array(indices))
            out = raggedmla.attention(framework.array(q), [(raggedmla.DenseKv(framework.array(kv)), rows)], splits=2,
                                      workspace=workspace)
            error = reference.relative_error(framework.numpy(out), expected)
            if not error < 5e-3:
                failures.append((seed, error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_workspace_grows_and_stays(framework, rng):
    like = framework.array(numpy.zeros(1, numpy.int32))
    workspace = raggedmla.Workspace()
    assert workspace.bytes == 0
    workspace.reserve(1000, like)
    assert workspace.bytes == 1000
    workspace.reserve(10, like)
    assert workspace.bytes == 1000
    workspace.reserve(1001, like)
    assert workspace.bytes == 2000  # doubled, so that growing step by step does not pile up memory
