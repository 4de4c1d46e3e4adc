"""Streams, graphs and devices: what only a GPU can show."""

import numpy
import pytest

import raggedmla
import reference
from frameworks import bfloat16

HEADS, WIDTH, ROWS = 16, 96, 4096


class Call:
    """Lists and attention with persistent buffers, as an engine would capture them."""

    def __init__(self, framework, rng, queries=8, device="cuda"):
        torch = framework.torch
        self.torch, self.queries = torch, queries
        with torch.cuda.device(device):
            self.kv_numpy = rng.standard_normal((ROWS, 512)).astype(numpy.float32).astype(bfloat16)
            self.kv = framework.array(self.kv_numpy).to(device)
            self.q = torch.randn(queries, HEADS, 512, device=device).bfloat16()
            self.indices = torch.zeros(queries, WIDTH, dtype=torch.int32, device=device)
            self.lengths = torch.zeros(queries, dtype=torch.int32, device=device)
            self.out = torch.empty_like(self.q)
            self.rows = raggedmla.RaggedRows(torch.empty(queries * WIDTH, dtype=torch.int32, device=device),
                                             torch.empty(queries + 1, dtype=torch.int32, device=device))
        self.framework, self.rng = framework, rng

    def new_lists(self):
        indices = self.rng.integers(-1, ROWS, (self.queries, WIDTH), dtype=numpy.int32)
        lengths = self.rng.integers(-1, WIDTH + 3, self.queries, dtype=numpy.int32)
        self.indices.copy_(self.torch.from_numpy(indices))
        self.lengths.copy_(self.torch.from_numpy(lengths))
        lists = reference.lists_of_dense(indices, lengths)
        self.expected, _ = reference.attention(self.framework.numpy(self.q), [(self.kv_numpy, lists)])

    def __call__(self, **arguments):
        raggedmla.build_ragged(self.indices, self.lengths, out=self.rows, **arguments)
        raggedmla.attention(self.q, [(raggedmla.DenseKv(self.kv), self.rows)], out=self.out, splits=3, **arguments)

    def check(self):
        self.torch.cuda.synchronize(self.q.device)
        assert reference.relative_error(self.framework.numpy(self.out), self.expected) < 5e-3


@pytest.mark.parametrize("own_workspace", [False, True])
def test_graph_replay_with_other_lists(cuda, rng, own_workspace):
    torch = cuda.torch
    call = Call(cuda, rng)
    arguments = {"workspace": raggedmla.Workspace()} if own_workspace else {}
    call.new_lists()
    call(**arguments)  # outside: the workspace grows to its size
    call.check()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(**arguments)
    for _ in range(4):
        call.new_lists()
        call.out.fill_(float("nan"))
        graph.replay()
        call.check()


def test_first_call_of_a_device_inside_a_capture(cuda, rng):
    """With `preload`, and scratch from the graph's own memory."""
    raggedmla.preload("cuda:0")
    call = Call(cuda, rng, queries=5)
    call.new_lists()
    graph = cuda.torch.cuda.CUDAGraph()
    with cuda.torch.cuda.graph(graph):
        call()
    graph.replay()
    call.check()


def test_workspace_refuses_to_grow_in_a_capture(cuda, rng):
    torch = cuda.torch
    call, workspace = Call(cuda, rng), raggedmla.Workspace()
    call.new_lists()
    call()
    with pytest.raises(ValueError, match="cannot grow while the stream is being captured"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            call(workspace=workspace)
    call(workspace=workspace)
    call.check()


def test_current_stream_is_used(cuda, rng):
    """The call waits behind work on PyTorch's current stream: with another stream it would read stale lists."""
    torch = cuda.torch
    call = Call(cuda, rng)
    call.new_lists()
    wanted = call.indices.clone()
    stream = torch.cuda.Stream()
    for arguments in ({}, {"stream": stream}, {"stream": stream.cuda_stream}):
        call.indices.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # about 10 ms
            call.indices.copy_(wanted)
            if not arguments:
                call()
        if arguments:
            call(**arguments)
        call.check()


def test_no_host_wait(cuda, rng):
    torch = cuda.torch
    call = Call(cuda, rng)
    call.new_lists()
    call()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(200_000_000)  # about 0.1 s
        call()
        assert not torch.cuda.current_stream().query()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    call.check()


def test_second_device(cuda, rng):
    torch = cuda.torch
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    call = Call(cuda, rng, device="cuda:1")
    call.new_lists()
    call()
    assert torch.cuda.current_device() == 0
    call.check()


def test_arrays_on_two_places_are_refused(cuda, rng):
    call = Call(cuda, rng)
    with pytest.raises(ValueError, match="is on"):
        raggedmla.build_ragged(call.indices, call.lengths.cpu())
