"""What a probe costs a script beside torch.profiler, and whether it names the waits that were planted in one.

Cost: iterations of one worker, and of two (DistributedDataParallel). Waits: ``planted_waits``, of two and four ranks; a
peer is TraceML (``traceml-ai``), where STALLPOINT_TRACEML names a Python that has it: an environment of its own with
PyTorch and ``pip install traceml-ai==0.4.2 nvidia-ml-py``.

usage, as a part of it: probe.py NETWORK BATCH ITERATIONS ROUNDS FOLDER
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch.profiler writes to standard error

import planted_waits
import torch
import torch.distributed as dist
from paired import Figure, Timing, interleaved, of, ratio
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile

import stallpoint
from stallpoint.measure.probe.probe import SECONDS_AT_ONCE, Probe
from stallpoint.measure.probe.probe_box import last_diagnosis
from stallpoint.networks import find_network

CASES = (("lenet", 64, 50), ("googlenet", 4, 2))
"""Network, samples of a worker's mini-batch, and iterations of a round."""
BARE, AGAIN, PROBED, PROFILED = "bare", "bare again (A/A)", "probe", "torch.profiler"


def benchmark(scratch: Path, count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Each case on one and two workers."""
    rows: list[Timing | Figure] = []
    lines = []
    for ranks in (1, 2):
        for name, batch, iterations in CASES:
            timings = _timings(name, batch, iterations, count, scratch, ranks)
            milliseconds = 1e3 * statistics.median(one.seconds for one in of(timings, BARE)) / iterations
            found = [
                ratio(timings, AGAIN, BARE),
                ratio(timings, PROBED, BARE, "<= 1.01"),
                ratio(timings, PROFILED, BARE),
            ]
            rows += [*timings, *found]
            size = f"{len(of(timings, BARE))} rounds of {iterations} iterations ({milliseconds:.1f} ms each)"
            lines.append(f"{timings[0].benchmark}, {size}")
            lines += [one.line(digits=4) for one in found]
    named, said = waits(scratch)
    return [*rows, *named], [*lines, *said]


# --- planted waits --------------------------------------------------------------------------------

TRACEML = "STALLPOINT_TRACEML"
SEED = "STALLPOINT_WAITS"
"""Variable with the seed of waits that are drawn."""
WAITS, DRAWN = (0.05, 0.1, 0.2), (0.045, 0.21)
"""Seconds; and between which drawn ones are."""
STEPS = 25
PHASES = dict(zip(planted_waits.WHERE, ("data_wait", "forward", "backward", "exposed_communication"), strict=True))
RIGHT, WRONG, UNTOLD = "right", "wrong", "not told"
Answer = tuple[str | None, int | None]
"""The phase, by its name in `planted_waits.WHERE`, and the rank that is slow in it; None where none is named."""


def cases(ranks: int) -> list[str]:
    """Each wait, on the last rank and on all; with `SEED` others, on any rank: thresholds were not chosen on them."""
    if seed := os.environ.get(SEED):
        draw, ranked = random.Random(int(seed)), product(planted_waits.WHERE, 2 * [*range(ranks)] + ["all"])
        return [f"{where}:{draw.uniform(*DRAWN):.3f}:{rank}" for where, rank in ranked]
    who = (str(ranks - 1), "all")
    return [f"{where}:{seconds}:{rank}" for where, seconds, rank in product(planted_waits.WHERE, WAITS, who)]


def waits(scratch: Path) -> tuple[list[Figure], list[str]]:
    """How many waits the probe, and its peer, name the phase and the rank of."""
    tools: dict[str, Callable[[int, Path], Iterator[tuple[str, Answer]]]] = {"probe": _by_probe}
    lines = []
    if os.environ.get(TRACEML):
        tools["TraceML"] = _by_traceml
    else:
        lines.append(f"TraceML is left out: no {TRACEML} names a Python with traceml-ai")
    rows = []
    for ranks, (tool, found) in product((2, 4), tools.items()):
        answers = dict(found(ranks, scratch / f"{tool}{ranks}"))
        for where, rank in product(planted_waits.WHERE, ("one", "all")):
            of = [case for case in answers if case.startswith(where) and case.endswith(":all") == (rank == "all")]
            said = Counter(judged(case, answers[case]) for case in of)
            texts = [f"{said[word]} {word}" for word in (RIGHT, WRONG, UNTOLD)]
            lines.append(f"waits, {ranks} ranks, {where} of {rank}: {tool} {', '.join(texts)} of {len(of)}")
            for word in (RIGHT, WRONG):
                part = said[word] / len(of)
                wanted = ">= 0.95" if word == RIGHT else "<= 0.05"
                name = f"waits, {ranks} ranks, {where} of {rank}"
                rows.append(Figure(name, tool, word, part, part, part, wanted if tool == "probe" else ""))
    return rows, lines


def judged(case: str, answer: Answer) -> str:
    """Whether an answer is right, wrong, or leaves the phase or the slow rank untold."""
    where, _, who = case.split(":")
    phase, rank = answer
    wanted = None if who == "all" else int(who)
    if phase not in (None, where) or (rank is not None and rank != wanted):
        return WRONG
    return RIGHT if (phase, rank) == (where, wanted) else UNTOLD


def _by_probe(ranks: int, folder: Path) -> Iterator[tuple[str, Answer]]:
    """What the probe says of each case: all of them are trained in one program."""
    _started([sys.executable, planted_waits.__file__, "probe", str(STEPS), str(folder), *cases(ranks)], ranks)
    names = {phase: where for where, phase in PHASES.items()}
    for case in cases(ranks):
        found = last_diagnosis(folder / case)
        yield case, (names.get(found.phase, found.phase), found.rank) if found else (None, None)


def _by_traceml(ranks: int, folder: Path) -> Iterator[tuple[str, Answer]]:
    """What TraceML says: a program for each case, as its summary is one of a whole run."""
    program = Path(os.environ[TRACEML]).with_name("traceml")
    for number, case in enumerate(cases(ranks)):
        command = [
            program, "run", planted_waits.__file__, "--nproc-per-node", str(ranks), "--master-port", str(_free_port()),
            "--logs-dir", folder, "--run-name", f"case{number}", "--args", "traceml", str(STEPS), folder, case,
        ]  # fmt: skip
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        for _ in range(2):  # sometimes its processes do not connect
            ended = subprocess.run(command, env=variables, capture_output=True, text=True)
            if not ended.returncode:
                break
        else:
            raise SystemExit(f"benchmark probe: TraceML failed on {case}: {ended.stdout[-500:]}")
        summary = json.loads((folder / f"case{number}" / "final_summary.json").read_text())
        yield case, _of_traceml(summary["primary_diagnosis"])


def _of_traceml(said: dict[str, Any]) -> Answer:
    """Its primary diagnosis as phase and rank. *Compute-bound* tells no phase, *residual-heavy* that it knows none."""
    kind = said["kind"]
    worst = (said.get("evidence") or {}).get("worst") or {}
    rank = worst.get("rank") if kind.endswith("STRAGGLER") else None
    if kind.startswith("INPUT"):
        return "input", rank
    phase = str(said.get("phase") or (said.get("evidence") or {}).get("phase") or "").lower()
    return (phase if phase in planted_waits.WHERE and rank is not None else None), rank


def _started(command: list[str], ranks: int) -> list[str]:
    """What each of `ranks` processes with the variables of a launcher printed."""
    common = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo", "STALLPOINT_PROBE_BOX": "0",
    }  # fmt: skip
    processes = [
        subprocess.Popen(command, env={**os.environ, **common, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"benchmark probe: {' '.join(command)} failed on {ranks} workers")
    return said


def _free_port() -> int:
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return int(any_socket.getsockname()[1])


# --- cost -----------------------------------------------------------------------------------------


def _timings(name: str, batch: int, iterations: int, count: int, scratch: Path, ranks: int) -> list[Timing]:
    """What the first of `ranks` processes measured."""
    said = _started([sys.executable, __file__, name, str(batch), str(iterations), str(count), str(scratch)], ranks)
    return [Timing(**one) for one in json.loads(said[0])]


def _measure(name: str, batch: int, iterations: int, count: int, folder: Path) -> list[Timing]:
    ranks = int(os.environ["WORLD_SIZE"])
    if ranks > 1:
        dist.init_process_group("gloo")

    def training(around: Callable[[nn.Module], AbstractContextManager[Any]]) -> Callable[[], float]:
        """Rounds of a network of its own: the hook that a probe puts on DistributedDataParallel stays there."""
        model: nn.Module = find_network(name).build(seed=1)
        if ranks > 1:
            model = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        inputs, labels = find_network(name).takes.example(batch, torch.device("cpu"))

        def run() -> float:
            with around(model) as kept:
                if ranks > 1:
                    dist.barrier()
                begin = time.perf_counter()
                for _ in range(iterations):
                    optimizer.zero_grad()
                    model(inputs, labels).backward()
                    optimizer.step()
                    if isinstance(kept, Probe):
                        kept.step()
                seconds = time.perf_counter() - begin
                if isinstance(kept, Probe):  # TraceML writes every few seconds, a part of each round
                    begin = time.perf_counter()
                    kept.write()
                    seconds += (time.perf_counter() - begin) * seconds / SECONDS_AT_ONCE
                return seconds

        return run

    candidates = {
        BARE: training(lambda _: nullcontext()),
        AGAIN: training(lambda _: nullcontext()),
        PROBED: training(lambda model: stallpoint.probe(model, folder=folder)),
        PROFILED: training(lambda _: profile()),
    }
    return interleaved(f"probe: {name}, b = {batch}, {ranks} worker(s)", candidates, count)


if __name__ == "__main__":
    network, batch, iterations, count, records = sys.argv[1:]
    found = _measure(network, int(batch), int(iterations), int(count), Path(records))
    print(json.dumps([vars(one) for one in found]))
