#!/usr/bin/env python3
"""Times the CPU backend against PyTorch's gather + matmul + softmax on the same machine and threads.

    bench/cpu_vs_torch.py [--library build/src/libraggedmla_c.so] [--threads 2] [--rounds 15] [--out FILE.md]

Needs PyTorch (any build; only its CPU kernels are used). PyTorch is given its best case: every way of storing the rows
and every number of queries per batched product that is tried below is timed, and the fastest one is compared with.
Results are compared before anything is timed, and the contestants take turns, so that other load hits all alike.
"""
import argparse
import ctypes
import datetime
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, NOPE, GROUP, ROW_BYTES, SCALE_BYTES = 512, 448, 64, 576, 8
SCALE = WIDTH**-0.5


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=str(ROOT / "build/src/libraggedmla_c.so"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", help="write the table to this file as well")
    return parser.parse_args()


ARGUMENTS = parse_arguments()
os.environ["OMP_NUM_THREADS"] = str(ARGUMENTS.threads)  # read by both OpenMP runtimes when they are loaded
import torch  # noqa: E402

# ---- the library through its C ABI -----------------------------------------------------------------------------------


class Tensor(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("data", ctypes.c_void_p), ("dtype", ctypes.c_int32),
                ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4)]  # fmt: skip


class Kv(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("rows_per_page", ctypes.c_int32),
                ("encoding", ctypes.c_int32), ("reserved", ctypes.c_int32), ("rows", ctypes.POINTER(Tensor))]  # fmt: skip


class Rows(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("reserved", ctypes.c_int32)]
    _fields_ += [(name, ctypes.POINTER(Tensor)) for name in
                 ("indices", "indptr", "lengths", "first", "count", "query_start", "block_table", "row_base")]  # fmt: skip
    _fields_ += [("ring_rows", ctypes.c_int64), ("max_queries_per_request", ctypes.c_int64)]


class Segment(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("kv", ctypes.POINTER(Kv)), ("rows", ctypes.POINTER(Rows))]


class Attention(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("q", ctypes.POINTER(Tensor)),
                ("segments", ctypes.POINTER(Segment)), ("segment_count", ctypes.c_int32),
                ("scale", ctypes.c_float)]  # fmt: skip
    _fields_ += [(name, ctypes.POINTER(Tensor)) for name in ("sink", "out", "lse", "max_logits")]
    _fields_ += [("epilogue", ctypes.c_void_p), ("schedule", ctypes.c_void_p)]


class Workspace(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t),
                ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32)]  # fmt: skip


DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.uint8: 2, torch.int32: 3, torch.int64: 4}
KV_DENSE, KV_PAGED, LIST_DENSE = 0, 1, 1


def sized(structure, **fields):
    return structure(struct_size=ctypes.sizeof(structure), **fields)


def view(tensor):
    result = sized(Tensor, data=tensor.data_ptr(), dtype=DTYPES[tensor.dtype], rank=tensor.dim())
    result.shape[: tensor.dim()] = tensor.shape
    result.stride[: tensor.dim()] = tensor.stride()
    return ctypes.pointer(result)


class RaggedMla:
    """One attention call with its scratch, ready to be repeated."""

    def __init__(self, library, q, segments):
        self.library, self.out = library, torch.empty_like(q)
        self.tensors = (q, segments)  # the call holds their addresses
        parts = []
        for source, rows_per_page, indices in segments:
            kv = sized(Kv, kind=KV_PAGED if rows_per_page else KV_DENSE, rows_per_page=rows_per_page, rows=view(source))
            rows = sized(Rows, kind=LIST_DENSE, indices=view(indices))
            parts.append(sized(Segment, kv=ctypes.pointer(kv), rows=ctypes.pointer(rows)))
        self.call = sized(Attention, q=view(q), segments=(Segment * len(parts))(*parts), segment_count=len(parts),
                          scale=SCALE, out=view(self.out))  # fmt: skip
        needed = ctypes.c_size_t()
        self.check(library.raggedmla_attention_workspace_bytes(ctypes.byref(self.call), ctypes.byref(needed)))
        self.scratch = torch.empty(needed.value + 256, dtype=torch.uint8)
        aligned = (self.scratch.data_ptr() + 255) // 256 * 256
        self.workspace = sized(Workspace, data=aligned, bytes=needed.value)

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.library.raggedmla_last_error().decode())

    def __call__(self):
        self.check(self.library.raggedmla_attention(ctypes.byref(self.call), ctypes.byref(self.workspace), None))
        return self.out


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def attend(q, rows):
    """q [t, H, 512], rows [t, K, 512] of one type."""
    weights = torch.bmm(q, rows.transpose(1, 2)).mul_(SCALE).softmax(-1)
    return torch.bmm(weights, rows)


def in_chunks(work, tokens, chunk):
    """Gathering all rows of all queries at once leaves the caches: `chunk` queries at a time."""
    return lambda: torch.cat([work(slice(t, t + chunk)) for t in range(0, tokens, chunk)]).bfloat16()


def gather_fp8(pages, rows_per_page, slots):
    """Rows at slots out of fp8_ds_mla pages, as float."""
    data = pages[:, : ROW_BYTES * rows_per_page].unflatten(1, (rows_per_page, ROW_BYTES))
    payload = (ROW_BYTES + SCALE_BYTES) * rows_per_page
    scales = pages[:, ROW_BYTES * rows_per_page : payload].unflatten(1, (rows_per_page, SCALE_BYTES))
    page, row = slots // rows_per_page, slots % rows_per_page
    rows, bytes_ = data[page, row], scales[page, row][..., : NOPE // GROUP]
    powers = (bytes_.int() << 23).view(torch.float32)
    nope = rows[..., :NOPE].view(torch.float8_e4m3fn).float().unflatten(-1, (NOPE // GROUP, GROUP)) * powers[..., None]
    return torch.cat([nope.flatten(-2), rows[..., NOPE:].view(torch.bfloat16).float()], -1)


# ---- workloads -------------------------------------------------------------------------------------------------------


def random_pages(pages, rows_per_page):
    """fp8 pages without NaN codes; page stride a multiple of 576."""
    payload = (ROW_BYTES + SCALE_BYTES) * rows_per_page
    memory = torch.zeros(pages, (payload + 575) // 576 * 576, dtype=torch.uint8)
    rows = memory[:, : ROW_BYTES * rows_per_page].unflatten(1, (rows_per_page, ROW_BYTES))
    codes = torch.randint(0, 127, (pages, rows_per_page, NOPE), dtype=torch.uint8)
    rows[..., :NOPE] = codes + 128 * torch.randint(0, 2, codes.shape, dtype=torch.uint8)
    rows[..., NOPE:] = torch.randn(pages, rows_per_page, WIDTH - NOPE).bfloat16().view(torch.uint8)
    memory[:, ROW_BYTES * rows_per_page : payload] = torch.randint(118, 122, (pages, SCALE_BYTES * rows_per_page))
    return memory


def prefill(library, tokens=256, heads=16, length=640, rows=8192):
    q, kv = torch.randn(tokens, heads, WIDTH).bfloat16(), torch.randn(rows, WIDTH).bfloat16()
    indices = torch.randint(0, rows, (tokens, length))
    q32, kv32 = q.float(), kv.float()
    ways = {
        "bf16 rows, bf16 products": lambda t: attend(q[t], kv[indices[t]]),
        "bf16 rows, fp32 products": lambda t: attend(q32[t], kv[indices[t]].float()),
        "rows kept as fp32 (conversion not timed)": lambda t: attend(q32[t], kv32[indices[t]]),
    }
    title = f"prefill, {tokens} queries, {heads} heads, {length} of {rows} bf16 rows each"
    return title, RaggedMla(library, q, [(kv, 0, indices.int())]), ways, tokens


def decode(library, batch=16, heads=64, window=128, extra=512, rows_per_page=64):
    q = torch.randn(batch, heads, WIDTH).bfloat16()
    window_pages, extra_pages = random_pages(64, rows_per_page), random_pages(512, rows_per_page)
    window_slots = torch.randint(0, 64 * rows_per_page, (batch, window))
    extra_slots = torch.randint(0, 512 * rows_per_page, (batch, extra))

    def from_pages(t):
        rows = [gather_fp8(window_pages, rows_per_page, window_slots[t]),
                gather_fp8(extra_pages, rows_per_page, extra_slots[t])]  # fmt: skip
        return attend(q32[t], torch.cat(rows, 1))

    every = [gather_fp8(pages, rows_per_page, torch.arange(pages.shape[0] * rows_per_page))
             for pages in (window_pages, extra_pages)]  # fmt: skip
    kv32 = torch.cat(every)
    kv16, q32 = kv32.bfloat16(), q.float()
    slots = torch.cat([window_slots, extra_slots + 64 * rows_per_page], 1)
    ways = {
        "fp8 pages, fp32 products (the same work)": from_pages,
        "rows dequantised to bf16 beforehand (not timed), fp32 products": lambda t: attend(q32[t], kv16[slots[t]].float()),
        "rows dequantised to fp32 beforehand (not timed)": lambda t: attend(q32[t], kv32[slots[t]]),
    }
    title = f"decode, batch {batch}, {heads} heads, {window} + {extra} rows of fp8 pages"
    segments = [(window_pages, rows_per_page, window_slots.int()), (extra_pages, rows_per_page, extra_slots.int())]
    return title, RaggedMla(library, q, segments), ways, batch


# ---- measurement -----------------------------------------------------------------------------------------------------


def measure(contestants, rounds):
    """{name: (wall milliseconds, CPU milliseconds of all threads)}, medians over rounds in which all take turns."""
    samples = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            time.sleep(0.02)  # lets the other runtime's threads fall asleep
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            samples[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: tuple(1e3 * statistics.median(s[i] for s in taken) for i in (0, 1)) for name, taken in samples.items()}


def compare(case, rounds):
    title, ours, ways, tokens = case
    print(title, file=sys.stderr)
    contestants, expected = {"RaggedMLA": ours}, None
    for way, work in ways.items():
        runs = {chunk: in_chunks(work, tokens, chunk) for chunk in (1, 16, tokens) if chunk <= tokens}
        fastest = measure(runs, 3)
        chunk = min(fastest, key=lambda c: fastest[c][1])
        contestants[f"PyTorch: {way}"] = runs[chunk]
    expected = list(contestants.values())[-1]().float()
    error = ((ours().float() - expected).norm() / expected.norm()).item()
    if not error < 8e-3:
        sys.exit(f"{title}: results differ (relative error {error:.1e})")
    times = measure(contestants, rounds)
    own_wall, own_cpu = times["RaggedMLA"]
    lines = [f"### {title}", "", f"Relative difference of the outputs: {error:.1e} (bf16 outputs of both).", "",
             "| what | wall ms | CPU ms (all threads) | wall, RaggedMLA = 1 | CPU, RaggedMLA = 1 |",
             "|---|---:|---:|---:|---:|"]  # fmt: skip
    for name, (wall, cpu) in times.items():
        lines.append(f"| {name} | {wall:.2f} | {cpu:.2f} | {wall / own_wall:.2f} | {cpu / own_cpu:.2f} |")
    return "\n".join(lines) + "\n"


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return "unknown processor"


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    torch.set_num_threads(ARGUMENTS.threads)
    library = ctypes.CDLL(ARGUMENTS.library)
    library.raggedmla_last_error.restype = ctypes.c_char_p
    load_before = os.getloadavg()[0]
    tables = [compare(case(library), ARGUMENTS.rounds) for case in (prefill, decode)]
    report = "\n".join([
        "# CPU backend against PyTorch",
        "",
        f"{processor()}, {ARGUMENTS.threads} thread{'s' * (ARGUMENTS.threads > 1)}, PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), "
        f"{datetime.date.today()}. Command: `{' '.join(['bench/cpu_vs_torch.py'] + sys.argv[1:])}`.",
        f"Medians of {ARGUMENTS.rounds} rounds in which all take turns. One-minute load average {load_before:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after, on {os.cpu_count()} processors: where it is far above the number of threads, "
        "other processes share the processors, and only CPU time compares.",
        "",
        *tables,
    ])  # fmt: skip
    print(report)
    if ARGUMENTS.out:
        pathlib.Path(ARGUMENTS.out).write_text(report)


if __name__ == "__main__":
    main()
