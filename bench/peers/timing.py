"""Times device work: CUDA graphs of many calls over rotating buffers, medians of many replays."""

import statistics
import time

import torch

# Buffers of neighbouring calls together exceed the card's L2 several times, so that no call finds its rows there
# only because the last one left them.
ROTATED_BYTES = 256 << 20


def rotations(bytes_per_call, most=128):
    """How many distinct buffers a timing loop needs."""
    return int(min(most, max(2, -(-ROTATED_BYTES // max(1, bytes_per_call)))))


def graph_us(calls, replays=15):
    """Median microseconds of one call in a replayed graph that holds all of `calls` (functions of no arguments)."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:  # compiles and loads everything outside the capture
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    graph.replay()
    return statistics.median(_replay_us(graph) for _ in range(replays)) / len(calls)


def _replay_us(graph):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def eager_us(call, repeats=200):
    """(host, total): median microseconds until a call returns on an idle device, and until its work is done."""
    for _ in range(10):
        call()
    torch.cuda.synchronize()
    host, total = [], []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        returned = time.perf_counter()
        torch.cuda.synchronize()
        host.append(returned - begin)
        total.append(time.perf_counter() - begin)
    return statistics.median(host) * 1e6, statistics.median(total) * 1e6
