"""`scripts/explain.py` beside HolisticTraceAnalysis: seconds and memory of a whole process on the same trace.

The trace is made up, unless STALLPOINT_TRACES names a folder with others. The peer is not among this project's
packages: STALLPOINT_HTA names a Python that has it (``pip install HolisticTraceAnalysis`` in an environment of its
own); without it ours is timed alone. Shares are compared where both are there.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import sys
from pathlib import Path

import numpy as np
from paired import Figure, Timing, report, rounds

PEER = """
import os, shutil, sys, json
from hta.trace_analysis import TraceAnalysis
file, folder = sys.argv[1], sys.argv[2]
os.makedirs(folder, exist_ok=True)
shutil.copy(file, folder)
analysis = TraceAnalysis(trace_files={0: os.path.join(folder, os.path.basename(file))}, trace_dir=folder)
one = analysis.get_temporal_breakdown(visualize=False).iloc[0]
names = {"idle": "idle_time_pctg", "compute": "compute_time_pctg", "non_compute": "non_compute_time_pctg"}
shares = {ours: float(one[theirs]) for ours, theirs in names.items()}
shares["overlap"] = float(analysis.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"])
json.dump(shares, open(sys.argv[3], "w"))
"""
OURS, HTA = "stallpoint", "HolisticTraceAnalysis"
KERNELS = 100_000


def benchmark(scratch: Path, count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Every trace by both, in turns."""
    folder, peer = os.environ.get("STALLPOINT_TRACES"), os.environ.get("STALLPOINT_HTA")
    files = sorted(Path(folder).glob("*.json*")) if folder else [made_up(scratch / "made-up.json.gz")]
    rows: list[Timing | Figure] = []
    lines: list[str] = []
    for file in files:
        told, theirs = scratch / "told.json", scratch / "theirs.json"
        commands = {OURS: [sys.executable, "scripts/explain.py", str(file), "--json", str(told)]}
        if peer:
            commands[HTA] = [peer, "-c", PEER, str(file), str(scratch / "hta"), str(theirs)]
        timings = rounds(f"traces {file.name}", commands, count)
        found, said = report(timings, OURS, HTA, "<= 0.2") if peer else ([], [])
        rows += [*timings, *found]
        lines += said or [f"traces {file.name}: {statistics.median(one.seconds for one in timings):.2f} s"]
        lines.append(f"  {OURS}: {_shares(json.loads(told.read_text())[0]['shares'])}")
        if peer:
            lines.append(f"  {HTA}: {_shares(json.loads(theirs.read_text()))}")
    return rows, lines


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f} %" for name, value in shares.items())


def made_up(path: Path) -> Path:
    """A trace of many kernels, one in twenty of them an all-reduce."""
    random, events, now = np.random.default_rng(0), [], 0.0
    for number in range(KERNELS):
        sends = number % 20 == 19
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)" if sends else f"gemm_{number % 50}"
        start, took = now, float(random.lognormal(3))
        common = {"ph": "X", "pid": 1, "tid": 1}
        if number % (KERNELS // 10) == 0:
            mark = {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": now, "dur": 1.0}
            events.append({**common, **mark, "args": {}})
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": now, "dur": 1.0}
        args = {"stream": 20 if sends else 7, "correlation": number + 1, "device": 0, "grid": [1, 2, 3]}
        kernel = {"cat": "kernel", "name": name, "ts": start, "dur": took}
        events += [{**common, **call, "args": {"correlation": number + 1}}, {**common, **kernel, "args": args}]
        now += float(random.lognormal(3))
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": events}
    path.write_bytes(gzip.compress(json.dumps(head, indent=1).encode(), 1))
    return path
