"""A decode step in a CUDA graph: paged caches, captured once, replayed while the sequences grow.

    python examples/torch_decode_graph.py        (needs PyTorch with a GPU)

The graph holds kernels only. What changes between replays, positions and top-k selections, is written into tensors
whose addresses the graph knows; lists are made on the device inside the graph.
"""

import torch

import raggedmla

if not torch.cuda.is_available():
    raise SystemExit("this example needs a GPU")

BATCH, HEADS, PAGE, RATIO, TOPK, WINDOW, CONTEXT = 8, 16, 64, 4, 512, 128, 16384
device = torch.device("cuda")


def int32(*shape):
    return torch.zeros(shape, dtype=torch.int32, device=device)


def make_cache(pages):
    """fp8 pages with random rows."""
    cache = torch.zeros(pages, 37440, dtype=torch.uint8, device=device)  # 64 rows of 584 bytes, padded to 576
    kv = raggedmla.PagedKv(cache, rows_per_page=PAGE)
    slots = torch.arange(pages * PAGE, device=device)
    raggedmla.quantize_rows(torch.randn(pages * PAGE, 512, device=device).bfloat16(), slots, kv)
    return kv


# Two caches: the last tokens themselves, and one compressed row for every four tokens.
window_columns, row_columns = CONTEXT // PAGE, CONTEXT // RATIO // PAGE
window_kv, row_kv = make_cache(BATCH * window_columns), make_cache(BATCH * row_columns)
window_table = torch.randperm(BATCH * window_columns, device=device).int().view(BATCH, window_columns)
row_table = torch.randperm(BATCH * row_columns, device=device).int().view(BATCH, row_columns)

# Everything a step reads or writes has a fixed address.
q = torch.randn(BATCH, HEADS, 512, device=device).bfloat16()
sink = torch.zeros(HEADS, device=device)
out = torch.empty_like(q)
lengths, request = int32(BATCH), torch.arange(BATCH, dtype=torch.int32, device=device)
query_start = torch.arange(BATCH + 1, dtype=torch.int32, device=device)
topk = int32(BATCH, TOPK)
first, count = int32(BATCH), int32(BATCH)
chosen = raggedmla.DenseRows(int32(BATCH, TOPK), int32(BATCH))

queries = raggedmla.RequestQueries(query_start, lengths)
window = raggedmla.RangeRows(first, count, query_start, window_table, max_queries_per_request=1)
segments = [raggedmla.Segment(window_kv, window), raggedmla.Segment(row_kv, chosen)]
workspace = raggedmla.Workspace()


def step():
    raggedmla.window_rows(queries, query_count=BATCH, window=WINDOW, out=(first, count), workspace=workspace)
    raggedmla.translate_topk(topk, request, row_table, out=chosen, workspace=workspace)
    raggedmla.attention(q, segments, sink, out=out, workspace=workspace)


def new_token(step_number):
    """The sequences grow and the indexer chooses other rows; short sequences have fewer rows than TOPK."""
    lengths.copy_(torch.arange(BATCH, device=device) * 1500 + 130 + step_number)
    scores = torch.rand(BATCH, CONTEXT // RATIO, device=device)
    visible = (lengths // RATIO)[:, None]
    scores.masked_fill_(torch.arange(CONTEXT // RATIO, device=device) >= visible, -1)
    values, indices = scores.topk(TOPK)
    topk.copy_(torch.where(values >= 0, indices, -1))


new_token(0)
step()  # outside the capture: the workspace grows to its size
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()

for number in range(1, 5):
    new_token(number)
    graph.replay()
    replayed = out.clone()
    step()
    assert torch.equal(replayed, out), "a replay differs from the eager call"
    print(f"step {number}: sequences of {lengths.min().item()} to {lengths.max().item()} tokens, "
          f"{chosen.lengths.min().item()} to {chosen.lengths.max().item()} chosen rows, replay equals the eager call")
