"""One decode step of DeepSeek-V4-Pro's attention: lists and attention of all 61 layers, as one rank of eight sees it.

    python bench/decode_step.py [--batch 64] [--context 32768] [--json FILE] [--timeline FILE]

Two steps are compared in one run: RaggedMLA, and the same step made of PyTorch index operations and Triton kernels
(bench/peers). Both are checked against each other layer by layer, then timed eagerly and as one captured graph. The
timeline file holds what the host and the device did during one eager step of each; bench/plot_decode_step.py draws it.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import index_ops  # noqa: E402
import raggedmla  # noqa: E402
import reference  # noqa: E402
import timing  # noqa: E402
import triton_kernels  # noqa: E402

DEVICE, SCALE = "cuda", 512**-0.5
HEADS, TOPK, WINDOW = 16, 1024, 128  # 128 heads over 8 ranks
MAX_CONTEXT = 131072  # what list buffers are sized for
# Layers 0 and 1 and every odd layer attend to all ratio-128 rows (HCA), the other even layers to top-k rows (CSA).
LAYERS = ["hca" if layer < 2 or layer % 2 else "csa" for layer in range(61)]


@dataclasses.dataclass
class Layer:
    kind: str
    q: torch.Tensor
    out: torch.Tensor
    sink: torch.Tensor
    window_pages: torch.Tensor
    pages: torch.Tensor
    topk: torch.Tensor | None


class Step:
    """The step's inputs: as many distinct caches as the model has layers, so that no layer finds its rows in the L2."""

    def __init__(self, batch, context):
        self.batch = batch
        positions = context - 1 - torch.randint(0, context // 4, (batch,), device=DEVICE)
        self.positions = positions
        self.sequence_lengths = (positions + 1).int()
        self.request = torch.arange(batch, device=DEVICE)
        self.query_start = torch.arange(batch + 1, dtype=torch.int32, device=DEVICE)
        # A sliding-window cache keeps only the last pages: the table's earlier columns point to page 0.
        self.window_table = torch.zeros(batch, context // 64, dtype=torch.int32, device=DEVICE)
        kept = torch.arange(1, 3 * batch + 1, dtype=torch.int32, device=DEVICE).view(batch, 3)
        last = positions[:, None] // 64 - torch.arange(2, -1, -1, device=DEVICE)
        self.window_table.scatter_(1, last, kept)
        self.csa_table = self.shuffled_table(context // 4 // 64)
        self.hca_table = self.shuffled_table(context // 128 // 2)
        self.layers = [self.layer(kind) for kind in LAYERS]

    def shuffled_table(self, columns):
        pages = torch.randperm(self.batch * columns, device=DEVICE, dtype=torch.int32)
        return pages.view(self.batch, columns)

    def layer(self, kind):
        table, rows_per_page = (self.csa_table, 64) if kind == "csa" else (self.hca_table, 2)
        topk = None
        if kind == "csa":
            scores = torch.rand(self.batch, table.shape[1] * 64, device=DEVICE)
            visible = (self.positions[:, None] + 1) // 4
            scores.masked_fill_(torch.arange(scores.shape[1], device=DEVICE) >= visible, -1)
            topk = scores.topk(TOPK).indices.int()
        q = torch.randn(self.batch, HEADS, 512, device=DEVICE).bfloat16()
        return Layer(kind, q, torch.empty_like(q), torch.randn(HEADS, device=DEVICE),
                     reference.make_pages(3 * self.batch + 1, 64, DEVICE),
                     reference.make_pages(table.numel(), rows_per_page, DEVICE), topk)


class PeerStep:
    """PyTorch index operations and Triton kernels; lists go through persistent buffers, as a captured graph needs."""

    def __init__(self, step, host_wait):
        self.step, self.host_wait = step, host_wait
        self.hca_width = MAX_CONTEXT // 128

        def buffers(width):
            return (torch.empty(step.batch * width, dtype=torch.int32, device=DEVICE),
                    torch.empty(step.batch + 1, dtype=torch.int32, device=DEVICE))

        self.window_buffers, self.hca_buffers = buffers(WINDOW), buffers(self.hca_width)

    def __call__(self):
        step = self.step
        window = triton_kernels.build_ragged(
            *index_ops.window_rows(step.positions, step.request, step.window_table), self.host_wait)
        window = index_ops.copy_to_graph_buffers(window, self.window_buffers)
        hca = triton_kernels.build_ragged(
            *index_ops.compressed_rows(step.positions, step.request, step.hca_table, self.hca_width), self.host_wait)
        hca = index_ops.copy_to_graph_buffers(hca, self.hca_buffers)
        for layer in step.layers:
            rows = hca
            if layer.kind == "csa":
                rows = index_ops.translate_topk(layer.topk, step.request, step.csa_table, self.host_wait)
            triton_kernels.decode(layer.q, layer.window_pages, window, layer.pages, rows, layer.sink, layer.out, SCALE)


class OwnStep:
    """RaggedMLA: the window and the ratio-128 rows are ranges (no list at all), top-k lists stay dense."""

    def __init__(self, step):
        self.step = step

        def int32(*shape):
            return torch.empty(shape, dtype=torch.int32, device=DEVICE)

        self.queries = raggedmla.RequestQueries(step.query_start, step.sequence_lengths)
        self.window, self.hca = ((int32(step.batch), int32(step.batch)) for _ in range(2))
        self.topk = raggedmla.DenseRows(int32(step.batch, TOPK), int32(step.batch))
        self.workspace = raggedmla.Workspace()
        window = raggedmla.RangeRows(*self.window, step.query_start, step.window_table, max_queries_per_request=1)
        hca = raggedmla.RangeRows(*self.hca, step.query_start, step.hca_table, max_queries_per_request=1)
        self.segments = [
            [raggedmla.Segment(raggedmla.PagedKv(layer.window_pages), window),
             raggedmla.Segment(raggedmla.PagedKv(layer.pages), self.topk if layer.kind == "csa" else hca)]
            for layer in step.layers]

    def __call__(self):
        step = self.step
        raggedmla.window_rows(self.queries, query_count=step.batch, out=self.window, workspace=self.workspace)
        raggedmla.compressed_rows(self.queries, query_count=step.batch, out=self.hca, workspace=self.workspace)
        for layer, segments in zip(step.layers, self.segments, strict=True):
            if layer.kind == "csa":
                raggedmla.translate_topk(layer.topk, step.request, step.csa_table, out=self.topk,
                                         workspace=self.workspace)
            raggedmla.attention(layer.q, segments, layer.sink, SCALE, out=layer.out, workspace=self.workspace)


# ---- measuring -----------------------------------------------------------------------------------------------------


def check(step, own, peer):
    """Largest relative error over the layers between the two steps' outputs."""
    peer()
    expected = [layer.out.clone() for layer in step.layers]
    for layer in step.layers:
        layer.out.fill_(float("nan"))
    own()
    errors = [reference.relative_error(layer.out, want.double())
              for layer, want in zip(step.layers, expected, strict=True)]
    if not max(errors) < 1e-2:
        sys.exit(f"layer {errors.index(max(errors))}: relative difference {max(errors):.3g}; nothing was timed")
    return max(errors)


def timeline(call):
    """What the host and the device did during one eager step: [lane, name, start us, duration us]."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        for _ in range(2):  # the profiler slows down the first
            call()
            torch.cuda.synchronize()
            time.sleep(0.02)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profile.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    lanes = {"kernel": "device", "gpu_memcpy": "device", "gpu_memset": "device", "cuda_runtime": "host",
             "cuda_driver": "host"}
    events = [e for e in events
              if e.get("cat") in lanes and e.get("ph") == "X" and e["name"] != "cudaDeviceSynchronize"]
    second = after_longest_pause(sorted(events, key=lambda e: e["ts"]))
    return [[lanes[e["cat"]], short_name(e["name"]), round(e["ts"] - second[0]["ts"], 2), round(e["dur"], 2)]
            for e in second]


def after_longest_pause(events):
    """The events, in order of time, that follow the longest time in which nothing began."""
    pauses = [later["ts"] - earlier["ts"] for earlier, later in zip(events, events[1:], strict=False)]
    return events[pauses.index(max(pauses)) + 1 :]


def short_name(name):
    """A kernel's name without return type, namespaces and template arguments."""
    return name.removeprefix("void ").replace("(anonymous namespace)::", "").split("<")[0].split("(")[0][:80]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--context", type=int, default=32768)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--timeline", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    step = Step(arguments.batch, arguments.context)
    own, peer, waiting = OwnStep(step), PeerStep(step, host_wait=False), PeerStep(step, host_wait=True)
    error = check(step, own, peer)
    print(f"largest relative difference between the two steps over 61 layers: {error:.2g}")

    results = {}
    for name, call in {"peers, host wait": waiting, "peers": peer, "raggedmla": own}.items():
        host, total = timing.eager_us(call, repeats=20)
        results[name] = {"host_us": host, "eager_us": total}
        if call is not waiting:  # a host wait cannot be captured
            results[name]["graph_us"] = timing.graph_us([call], replays=20)
        print(f"{name:18}" + "".join(f"  {key} {value:9.1f}" for key, value in results[name].items()), flush=True)
    calls = 2 + len(LAYERS) + LAYERS.count("csa")
    print(f"raggedmla: {results['raggedmla']['host_us'] / calls:.1f} us of host time a call ({calls} calls)")
    if arguments.json:
        report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "batch": arguments.batch,
                  "context": arguments.context, "heads": HEADS, "layers": len(LAYERS), "calls": calls,
                  "relative_difference": error, "us": results}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.timeline:
        lanes = {name: timeline(call) for name, call in {"peers, host wait": waiting, "peers": peer,
                                                         "raggedmla": own}.items()}
        arguments.timeline.write_text(json.dumps(lanes))


if __name__ == "__main__":
    main()
