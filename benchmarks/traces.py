"""`stallpoint explain` beside HolisticTraceAnalysis: seconds and memory of a whole process on the same trace.

The trace is made up, unless STALLPOINT_TRACES names a folder with others. The peer is not among this project's
packages: STALLPOINT_HTA names a Python that has it (``pip install HolisticTraceAnalysis`` in an environment of its
own); without it ours is timed alone. Shares are compared where both are there.
"""

from __future__ import annotations

import compileall
import gzip
import json
import os
import statistics
import sys
from pathlib import Path

import numpy as np
from paired import Figure, Timing, figure, of, report, rounds

PEER = """
import os, shutil, sys, json
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # times as traced, not rounded inwards to whole microseconds
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
EXPLAIN = """
import contextlib, sys
from stallpoint.cli import main
with open(sys.argv[2], "w") as told, contextlib.redirect_stdout(told):
    sys.exit(main(["explain", sys.argv[1], "--json"]) == 2)  # other statuses are answers
"""
OURS, HTA = "stallpoint", "HolisticTraceAnalysis"
KERNELS = 100_000
MESSAGES = (404, 2_020, 10_000)
PEER_BYTES = 200_000_000
"""Of a made-up trace for both: starting, which counts for small ones, counts little."""
LARGE_BYTES = 1_000_000_000
"""Of a trace that is read once, as it takes long: 1 GB, with 8.5 million events."""


def benchmark(scratch: Path, count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Every trace by both, in turns; and a large one by ours.

    Ours has its bytecode at hand, as pip leaves that of the peer, even where Python is told to write none.
    """
    compileall.compile_dir("src/stallpoint", quiet=1)
    folder, peer = os.environ.get("STALLPOINT_TRACES"), os.environ.get("STALLPOINT_HTA")
    files = sorted(Path(folder).glob("*.json*")) if folder else [made_up(scratch / "made-up.json.gz")]
    if peer:
        files.append(large(scratch / "200MB.json", PEER_BYTES))
    rows: list[Timing | Figure] = []
    lines: list[str] = []
    for file in files:
        found, said = _beside(file, scratch, count, peer)
        rows, lines = rows + found, lines + said
    for found, said in (_many(scratch), _large(scratch)):
        rows, lines = rows + found, lines + said
    return rows, lines


def _explain(file: Path, told: Path) -> list[str]:
    """Return the command that writes what the trace says to `told`."""
    return [sys.executable, "-c", EXPLAIN, str(file), str(told)]


def _many(scratch: Path) -> tuple[list[Timing | Figure], list[str]]:
    """Seconds with ever more messages of other sizes in an iteration: in proportion, and not to the square."""
    rows: list[Timing | Figure] = []
    lines: list[str] = []
    for messages in MESSAGES:
        file, name = many(scratch / "many.json", messages), f"traces, {messages:,} all-reduces in an iteration"
        took = rounds(name, {OURS: _explain(file, scratch / "told.json")}, 1)
        seconds = figure(name, OURS, "seconds", [one.seconds for one in took])
        rows, lines = [*rows, *took, seconds], [*lines, name, seconds.line(digits=2)]
    return rows, lines


def _beside(file: Path, scratch: Path, count: int, peer: str | None) -> tuple[list[Timing | Figure], list[str]]:
    told, theirs, name = scratch / "told.json", scratch / "theirs.json", f"traces {file.name}"
    commands = {OURS: _explain(file, told)}
    if peer:
        commands[HTA] = [peer, "-c", PEER, str(file), str(scratch / "hta"), str(theirs)]
    timings = rounds(name, commands, count)
    ours = json.loads(told.read_text())["traces"][0]["shares"]
    if not peer:
        said = [f"{name}: {statistics.median(one.seconds for one in timings):.2f} s", f"  {OURS}: {_shares(ours)}"]
        return list(timings), said
    figures, lines = report(timings, OURS, HTA, "<= 0.2")
    peaks = zip(*([one.peak_bytes or 0 for one in of(timings, which)] for which in (OURS, HTA)), strict=True)
    memory = figure(name, OURS, f"memory over that of {HTA}", [mine / other for mine, other in peaks], "<= 0.25")
    other = json.loads(theirs.read_text())
    apart = max(abs(ours[share] - other[share]) for share in ours)
    shares = Figure(
        name, OURS, f"shares beside those of {HTA}, largest difference in points", apart, apart, apart, "<= 1"
    )
    lines += [memory.line(digits=2), shares.line(digits=2)]
    lines += [f"  {OURS}: {_shares(ours)}", f"  {HTA}: {_shares(other)}"]
    return [*timings, *figures, memory, shares], lines


def _large(scratch: Path) -> tuple[list[Timing | Figure], list[str]]:
    """Seconds and memory of a trace of `LARGE_BYTES`."""
    file, name = large(scratch / "large.json"), "traces of 1 GB"
    took = rounds(name, {OURS: _explain(file, scratch / "told.json")}, 1)
    file.unlink()
    (one,) = took
    seconds = figure(name, OURS, "seconds", [one.seconds], "< 60")
    peak = figure(name, OURS, "GB of memory", [1e-9 * (one.peak_bytes or 0)], "< 2")
    return [*took, seconds, peak], [name, seconds.line(digits=1), peak.line(digits=2)]


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


def many(path: Path, messages: int) -> Path:
    """A trace of three iterations, in each of which as many kernels as messages run."""
    events, each = [], 50.0
    for call in range(3 * messages):
        now, host = call * each, {"ph": "X", "pid": 1, "tid": 1}
        if call % messages == 0:
            step = {"cat": "user_annotation", "name": f"ProfilerStep#{call // messages}", "dur": messages * each}
            events.append({**host, **step, "ts": now})
        size = {"Collective name": "allreduce", "In msg nelems": 1_000 + call % messages, "Group size": 2}
        for at, (name, stream, more) in enumerate((("gemm", 7, {}), ("ncclDevKernel_AllReduce_RING_LL(x)", 20, size))):
            told = {"correlation": 2 * call + at + 1}
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": now + at, "dur": 0.5, "args": told}
            own = {**told, "stream": stream, "dtype": "Float", **more}
            kernel = {"cat": "kernel", "name": name, "ts": now + 5 + 30 * at, "dur": 25.0, "args": own}
            events += [{**host, **launch}, {**host, **kernel}]
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": events}
    path.write_text(json.dumps(head))
    return path


def large(path: Path, size: int = LARGE_BYTES) -> Path:
    """A trace of so many bytes: the same iterations again and again, each event as short as events are, 100 bytes."""
    step, calls = 1e5, 2_000
    with path.open("w") as file:
        file.write('{"schemaVersion":1,"distributedInfo":{"rank":0,"world_size":2},"traceEvents":[\n')
        number, correlation = 0, 0
        while file.tell() < size:
            begin, events = number * step, []
            mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1}
            events.append({**mark, "ts": begin, "dur": step})
            for call in range(calls):
                correlation += 1
                now = begin + call * step / calls
                sends = call % 20 == 19
                name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)" if sends else f"gemm_{call % 50}"
                told = {"Collective name": "allreduce", "In msg nelems": 250_000, "Group size": 2, "dtype": "Float"}
                own = {"stream": 20 if sends else 7, "correlation": correlation}
                host = {"ph": "X", "pid": 1, "tid": 1}
                events += [
                    {**host, "cat": "cpu_op", "name": "aten::mm", "ts": now, "dur": 8},
                    {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": now + 1, "dur": 5,
                     "args": {"correlation": correlation}},
                    {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": now + 10, "dur": 30.125,
                     "args": own | (told if sends else {})},
                ]  # fmt: skip
            file.write(("" if number == 0 else ",\n") + ",\n".join(map(_compact, events)))
            number += 1
        file.write("\n]}\n")
    return path


def _compact(event: dict[str, object]) -> str:
    return json.dumps(event, separators=(",", ":"))
