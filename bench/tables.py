#!/usr/bin/env python3
"""Markdown tables of docs/performance.md from result files.

    python bench/tables.py bench/results/h200.json [--peers bench/results/h200-triton.json]

h200.json comes from `raggedmla bench --device cuda --json`, the peers' file from `bench/peers/triton_ragged.py --json`.
"""

import argparse
import json
import pathlib

# FlashMLA (commit 9241ae3) on an NVIDIA H200 under CUDA 13.0, heads padded to 64, T 4096, milliseconds; measured for the
# project's target table, not in the runs shown here.
FLASHMLA_MS = {640: 0.66, 1152: 1.04, 384: 0.49}

# (suite, shape, limit, what the limit is): limits in microseconds or, for rates, callables on the row.
TARGETS = [
    ("lists", "T 64 W 512", "build_ragged", lambda r, c: (r["microseconds"], 2.5, "us")),
    ("lists", "T 256 W 512", "build_ragged", lambda r, c: (r["microseconds"], 2.5, "us")),
    ("lists", "T 8192 W 1024", "build_ragged", lambda r, c: (1 / r["efficiency"], 1 / 0.8, "x copy floor")),
    ("prefill", "pro-tp8 H 16 K 1152 T 4096 disjoint", "automatic", lambda r, c: flashmla(r, 1152, 0.65)),
    ("prefill", "flash-tp8 H 8 K 640 T 4096 disjoint", "automatic", lambda r, c: flashmla(r, 640, 0.65)),
    ("prefill", "pro-tp8 H 16 K 1152 T 4096 overlap 0.80", "automatic", lambda r, c: flashmla(r, 1152, 0.4)),
    ("prefill", "flash-tp8 H 8 K 640 T 4096 overlap 0.80", "automatic", lambda r, c: flashmla(r, 640, 0.4)),
    ("prefill", "hca H 16 K 384 T 4096 ranges", "automatic", lambda r, c: flashmla(r, 384, 0.3)),
    ("prefill", "hca-1M H 16 K 8320 T 4096 ranges", "automatic",
     lambda r, c: (c["matrix_flops_per_second"] / (r["flops"] / r["microseconds"] * 1e6), 1 / 0.65, "x matrix floor")),
]


def flashmla(row, length, share):
    return row["microseconds"] / (FLASHMLA_MS[length] * 1e3), share, "x FlashMLA"


def line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def header(titles):
    return [line(titles), line("---" for _ in titles)]


def number(value, digits=2):
    return f"{value:.{digits}f}" if value else "–"


def suite_table(document, suite):
    rows = [r for r in document["results"] if r["suite"] == suite]
    if suite == "seeds":
        text = header(["lists", "how", "stream time in a graph, µs", "host busy, µs", "gap between neighbours, µs"])
        return text + [line([r["shape"], r["variant"], number(r["microseconds"]), number(r["host_microseconds"], 1),
                             number(r["gap_microseconds"], 1)]) for r in rows]
    text = header(["shape", "kernel", "µs", "floor, µs", "floor / time", "GB/s", "TFLOP/s", "host, µs"])
    for r in rows:
        seconds = r["microseconds"] * 1e-6
        text.append(line([r["shape"], r["variant"], number(r["microseconds"], 2 if r["microseconds"] < 100 else 0),
                          number(r["floor_microseconds"]), number(r["efficiency"]), number(r["bytes"] / seconds / 1e9, 0),
                          number(r["flops"] / seconds / 1e12, 1), number(r["host_microseconds"])]))
    return text


def target_table(document):
    text = header(["suite", "shape", "measured", "must be at most", ""])
    for suite, shape, variant, judge in TARGETS:
        for r in document["results"]:
            if (r["suite"], r["shape"], r["variant"]) == (suite, shape, variant):
                value, limit, unit = judge(r, document["ceilings"])
                text.append(line([suite, shape, f"{value:.2f} {unit}", f"{limit:.2f} {unit}",
                                  "met" if value <= limit else "**missed**"]))
    return text


def peer_table(peers):
    text = header(["suite", "shape", "Triton before, µs", "Triton after, µs", "RaggedMLA, µs", "after / RaggedMLA",
                   "must", ""])
    for r in peers["rows"]:
        us = r["us"]
        if r["suite"] == "lists" or "raggedmla" not in us:
            continue
        after = us.get("after", us.get("triton"))
        must = 2.0 if r["suite"] == "prefill" else (8.0 if r["T"] <= 64 else 4.0)
        ratio = after / us["raggedmla"]
        text.append(line([r["suite"], f"{r['shape']}, H {r['H']}, K {r['K']}", number(us.get("before", 0), 0),
                          number(after, 1), number(us["raggedmla"], 1), number(ratio, 1), f"{must:.0f}",
                          "met" if ratio >= must else "**missed**"]))
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--peers", type=pathlib.Path)
    arguments = parser.parse_args()
    document = json.loads(arguments.results.read_text())
    c = document["ceilings"]
    print(f"{document['device']['name']}: copy {c['copy_bytes_per_second'] / 1e12:.2f} TB/s, matrix "
          f"{c['matrix_flops_per_second'] / 1e12:.0f} TFLOP/s ({c['matrix_source']}); a kernel that does nothing costs "
          f"{c['launch_host_microseconds']:.2f} µs of host time and {c['node_microseconds']:.2f} µs a graph node.")
    print("\n### Targets\n")
    print("\n".join(target_table(document)))
    if arguments.peers:
        print("\n### Against the Triton kernels, in one run\n")
        print("\n".join(peer_table(json.loads(arguments.peers.read_text()))))
    for suite in ("lists", "prefill", "decode", "seeds"):
        print(f"\n### Suite `{suite}`\n")
        print("\n".join(suite_table(document, suite)))


if __name__ == "__main__":
    main()
