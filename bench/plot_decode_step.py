"""Draws the timeline of bench/decode_step.py: what the host and the device do during the first layers of one step.

    python bench/plot_decode_step.py TIMELINE.json[.gz] OUT.png [--milliseconds 2.5]
"""

import argparse
import gzip
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

TITLES = {
    "peers, host wait": "PyTorch index operations + Triton, lists sized by a host wait",
    "peers": "PyTorch index operations + Triton, no host wait",
    "raggedmla": "RaggedMLA",
}
COLORS = {"attention": "#2a6f97", "lists": "#e07a2f", "wait": "#c1121f", "launch": "#8d99ae", "host": "#e9ecef"}


def kind(lane, name):
    if lane == "device":
        return "attention" if any(word in name for word in ("attenti", "decode_kernel", "::merge")) else "lists"
    return "wait" if "Synchronize" in name else "launch"


def draw(axis, events, until_us):
    host_end = max(start + duration for lane, _, start, duration in events if lane == "host")
    axis.broken_barh([(0, min(host_end, until_us))], (1.05, 0.8), color=COLORS["host"])
    for lane, name, start, duration in events:
        if start > until_us:
            continue
        base = 0.05 if lane == "device" else 1.05
        axis.broken_barh([(start, duration)], (base, 0.8), color=COLORS[kind(lane, name)], linewidth=0)
    # Kernels overlap where one starts before its predecessor has ended.
    busy, covered_until = 0.0, 0.0
    for start, end in sorted((e[2], min(e[2] + e[3], until_us)) for e in events if e[0] == "device"):
        busy += max(0.0, end - max(start, covered_until))
        covered_until = max(covered_until, end)
    axis.set_yticks([0.45, 1.45], [f"device\n({100 * busy / until_us:.0f} % busy)", "host"])
    axis.set_ylim(0, 2)
    axis.set_xlim(0, until_us)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timeline", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--milliseconds", type=float, default=2.5)
    arguments = parser.parse_args()
    data = arguments.timeline.read_bytes()
    lanes = json.loads(gzip.decompress(data) if arguments.timeline.suffix == ".gz" else data)
    figure, axes = plt.subplots(len(lanes), 1, figsize=(12, 1.7 * len(lanes) + 0.8), sharex=True, layout="constrained")
    for axis, (name, events) in zip(axes, lanes.items(), strict=True):
        draw(axis, events, arguments.milliseconds * 1e3)
        whole = max(e[2] + e[3] for e in events if e[0] == "device")
        axis.set_title(f"{TITLES.get(name, name)}: 61 layers in {whole / 1e3:.1f} ms",
                       loc="left", fontsize=10)
    axes[-1].set_xlabel("microseconds since the step began")
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLORS[key]) for key in COLORS]
    figure.legend(handles, ["attention kernels", "list kernels and copies", "host waits for the device",
                            "host: runtime calls", "host: Python"], loc="outside lower center", ncols=5, fontsize=9)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, dpi=110)


if __name__ == "__main__":
    main()
