#!/usr/bin/env python3
"""Prints the JSON reports of `raggedmla run` as one table; exit code 1 if a check failed."""
import json
import sys
from pathlib import Path

rows = [("workload", "device", "queries", "heads", "rows read", "time", "GB/s", "GFLOP/s", "error", "check")]
passed = True
for path in map(Path, sys.argv[1:]):
    if not path.stat().st_size:
        rows.append((path.stem, "-", "-", "-", "-", "-", "-", "-", "-", "FAILED"))
        passed = False
        continue
    report = json.loads(path.read_text())
    check = report["check"]
    passed &= check["passed"]
    rows.append((path.stem, report["device"], f"{report['queries']}", f"{report['heads']}",
                 f"{report['selected_rows']}", f"{report['seconds_per_call'] * 1e6:.1f} us",
                 f"{report['gb_per_second']:.1f}", f"{report['gflop_per_second']:.0f}",
                 "-" if check["out_error"] is None else f"{check['out_error']:.1e}",
                 "passed" if check["passed"] else "FAILED"))

widths = [max(map(len, column)) for column in zip(*rows)]
for row in rows:
    print("  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                    for i, (cell, width) in enumerate(zip(row, widths))))
sys.exit(0 if passed else 1)
