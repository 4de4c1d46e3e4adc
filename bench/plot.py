#!/usr/bin/env python3
"""Pictures from a result file of `raggedmla bench --json`.

    python bench/plot.py bench/results/h200.json docs/images

writes `prefill.png` and `decode.png` (time against the number of queries, one line per shape, floors dashed) and
`roofline.png` (every attention row against the card's matrix and copy ceilings). Needs matplotlib.
"""

import argparse
import json
import pathlib
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def parse_shape(text):
    """'pro-tp8 H 16 K 1152 T 4096 disjoint' -> ('pro-tp8 H 16 K 1152 disjoint', 4096)."""
    match = re.match(r"(?P<name>.*?) (?:T|batch) (?P<count>\d+)(?P<rest>.*)", text)
    return match["name"] + match["rest"], int(match["count"])


def lines_of(results, suite):
    """{shape without its count: sorted [(count, microseconds, floor)]} of the automatically chosen kernel."""
    lines = {}
    for row in results:
        if row["suite"] == suite and row["variant"] == "automatic":
            name, count = parse_shape(row["shape"])
            lines.setdefault(name, []).append((count, row["microseconds"], row["floor_microseconds"]))
    return {name: sorted(points) for name, points in lines.items() if len(points) > 2}


def plot_times(document, suite, xlabel, path):
    figure, axes = plt.subplots(figsize=(8, 5))
    for name, points in lines_of(document["results"], suite).items():
        counts, times, floors = zip(*points)
        (line,) = axes.loglog(counts, times, marker="o", label=name)
        axes.loglog(counts, floors, linestyle="--", color=line.get_color(), alpha=0.5)
    axes.set_xlabel(xlabel)
    axes.set_ylabel("time (µs); dashed: floor")
    axes.set_title(f"{suite}, {document['device']['name']}")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def plot_roofline(document, path):
    copy = document["ceilings"]["copy_bytes_per_second"]
    matrix = document["ceilings"]["matrix_flops_per_second"]
    figure, axes = plt.subplots(figsize=(8, 5))
    intensities = []
    for suite, marker in (("prefill", "o"), ("decode", "^")):
        rows = [r for r in document["results"] if r["suite"] == suite and r["variant"] == "automatic" and r["flops"] > 0]
        # Operations per byte that must leave device memory: each distinct row, query and output once.
        intensity = [r["flops"] / (r["copy_floor"] * 1e-6 * copy) for r in rows]
        rate = [r["flops"] / r["microseconds"] / 1e6 for r in rows]
        intensities += intensity
        axes.scatter(intensity, rate, marker=marker, s=18, label=suite)
    low, high = min(intensities) / 2, max(intensities) * 2
    grid = [low * (high / low) ** (i / 200) for i in range(201)]
    roof = [min(matrix or float("inf"), copy * x) / 1e12 for x in grid]
    axes.loglog(grid, roof, color="black", linewidth=1, label="copy and matrix ceilings")
    axes.set_xlabel("FLOP per byte of distinct data")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(f"Attention against the ceilings, {document['device']['name']}")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    document = json.loads(arguments.results.read_text())
    arguments.folder.mkdir(parents=True, exist_ok=True)
    plot_times(document, "prefill", "queries", arguments.folder / "prefill.png")
    plot_times(document, "decode", "batch", arguments.folder / "decode.png")
    plot_roofline(document, arguments.folder / "roofline.png")


if __name__ == "__main__":
    main()
