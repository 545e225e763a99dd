"""Scheduling 3.3 M tasks: WFBP of a network like ResNet-50 (161 layers) on 1,024 different workers, 10 iterations.

Run as a program it is one candidate, ``dag_engine.py CANDIDATE``: it prints seconds, work done and a result as JSON.
Making the inputs is not counted, and lists are made for those peers that want them; machine code and memory are warm.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from stallpoint.models.dag import Template

LAYERS, WORKERS, ITERATIONS = 161, 1024, 10
SMALL = (16, 2)
"""Workers and iterations for peers that are too slow for more; their rate falls with size."""
MEDIUM = (128, 10)
SCENARIOS = 1_000_000
CALLS = 5
"""Of each part in one process, of which the median counts."""
SIMGRID = "STALLPOINT_SIMGRID_PEER"
"""Environment variable with the path of `simgrid_peer.cpp` compiled."""


# --- the job ------------------------------------------------------------------------------------------


def template() -> Template:
    """Forward and backward tasks of a worker; an all-reduce for each layer and an update for all."""
    from stallpoint.models.dag import Kind, Task, Template

    order = [f"forward {n}" for n in range(LAYERS)] + [f"backward {n}" for n in reversed(range(LAYERS))]
    worker = [
        Task(name, Kind.COMPUTE, 0, "compute", order[place - 1 : place] if place else ())
        for place, name in enumerate(order)
    ]
    reduced = [
        Task(f"all-reduce {n}", Kind.COMMUNICATION, 0, "network", (f"backward {n}",)) for n in reversed(range(LAYERS))
    ]
    update = Task("update", Kind.COMPUTE, 0, "update", tuple(task.name for task in reduced))
    return Template(worker, [*reduced, update], [("update", "forward 0")])


def durations(workers: int, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the workers' tasks [iterations, tasks, workers] and of the shared ones [iterations, tasks]."""
    random = np.random.default_rng(0)
    return random.random((iterations, 2 * LAYERS, workers)), random.random((iterations, LAYERS + 1))


def arrays(workers: int, iterations: int) -> dict[str, np.ndarray]:
    """The job as durations, resources and edges, iteration by iteration, worker by worker."""
    job = template()
    own, shared = durations(workers, iterations)
    numbers = job._numbers(workers, iterations)
    before, after = job._edges(*numbers)
    return {
        "duration": job._spread(np.moveaxis(own, 2, 1), shared, workers, iterations),
        "resource": job._resources(workers, iterations)[0],
        "before": before,
        "after": after,
    }


# --- candidates ---------------------------------------------------------------------------------------


@dataclass
class Result:
    """Seconds of each part, the tasks or scenarios done in it, and the end of the job (or a sum of all)."""

    seconds: dict[str, float]
    count: int
    result: float


def timed(function: Callable, calls: int = CALLS) -> tuple[float, Any]:
    """Seconds (median of some calls, memory and caches warm) and the value."""
    seconds = []
    value = None
    for _ in range(calls):
        del value
        begin = time.perf_counter()
        value = function()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), value


def graph(workers: int = WORKERS, iterations: int = ITERATIONS, shuffled: bool = False) -> Result:
    """Any graph: from arrays of durations, resources and edges to when every task starts."""
    from stallpoint.models.dag import task_graph

    job = arrays(workers, iterations)
    if shuffled:
        random = np.random.default_rng(1)
        number = random.permutation(len(job["duration"])).astype(np.int32)
        inverse, edges = np.argsort(number), random.permutation(len(job["before"]))
        job = {
            "duration": job["duration"][inverse],
            "resource": job["resource"][inverse],
            "before": number[job["before"]][edges],
            "after": number[job["after"]][edges],
        }
    build, built = timed(lambda: task_graph(**job), 1 if shuffled else CALLS)  # that one is slow
    run, times = timed(built.run)
    return Result({"build": build, "run": run}, len(built), float(times.end.max()))


def shuffled() -> Result:
    """The same graph, tasks and edges in random order."""
    return graph(shuffled=True)


def replicated() -> Result:
    """One worker's template: all ends kept; different durations in every iteration."""
    job, (own, shared) = template(), durations(WORKERS, ITERATIONS)
    run, ends = timed(lambda: job.run(own, shared, iterations=ITERATIONS))
    return Result({"run": run}, own.size + shared.size, float(ends.shared[-1, -1]))


def numpy_replicated() -> Result:
    """The same recursion by hand in numpy; it keeps no ends but those of updates."""
    own, shared = durations(WORKERS, ITERATIONS)

    def recursion() -> float:
        now = 0.0
        for seconds, together in zip(own, shared, strict=True):
            ready = np.cumsum(seconds, axis=0)[LAYERS:].max(axis=1)
            free = 0.0
            for at, length in zip(ready.tolist(), together.tolist(), strict=False):
                free = max(free, at) + length
            now += free + together[-1]
        return now

    run, now = timed(recursion)
    return Result({"run": run}, own.size + shared.size, now)


def costs() -> tuple[np.ndarray, np.ndarray]:
    """Parts [compute, latency, bandwidth; tasks] of equal workers' tasks, and factors [3, scenarios]."""
    random = np.random.default_rng(0)
    parts = np.zeros((3, 3 * LAYERS + 1))
    parts[0, : 2 * LAYERS] = random.random(2 * LAYERS)
    parts[1, 2 * LAYERS : 3 * LAYERS] = 0.1
    parts[2, 2 * LAYERS : 3 * LAYERS] = random.random(LAYERS)
    parts[0, -1] = 0.1
    return parts, random.random((3, SCENARIOS))


def what_if() -> Result:
    """Iteration times in the steady state, on all cores."""
    from stallpoint.models.dag import Structure

    parts, factors = costs()
    job = template()
    find, structure = timed(lambda: (made := Structure(job, parts), made.longest)[0])
    run, seconds = timed(lambda: structure.iteration_seconds(factors))
    return Result({"find": find, "run": run}, SCENARIOS, float(seconds.sum()))


def numpy_what_if() -> Result:
    """The same by hand in numpy: one all-reduce after the other, scenarios in blocks that stay in cache."""
    parts, factors = costs()
    ready = np.cumsum(parts[0, : 2 * LAYERS])[LAYERS:]

    def recursion() -> float:
        total = 0.0
        for begin in range(0, SCENARIOS, 1 << 14):
            speed, latency, bandwidth = factors[:, begin : begin + (1 << 14)]
            free = np.zeros(len(speed))
            fixed = parts[1, 2 * LAYERS] * latency
            for at, length in zip(ready, parts[2, 2 * LAYERS :], strict=False):
                np.maximum(free, at * speed, out=free)
                free += fixed + length * bandwidth
            total += float((free + parts[0, -1] * speed).sum())
        return total

    run, total = timed(recursion)
    return Result({"run": run}, SCENARIOS, total)


def rustworkx() -> Result:
    """Length of the longest path, in tasks: one number. Durations are all equal; others are a Python call an edge."""
    import rustworkx as rx

    job = arrays(*MEDIUM)
    count = len(job["duration"])
    edges = list(zip(job["before"].tolist(), job["after"].tolist(), strict=True))

    def build() -> rx.PyDiGraph:
        made = rx.PyDiGraph(multigraph=True)
        made.add_nodes_from(range(count))
        made.add_edges_from_no_data(edges)
        return made

    seconds, made = timed(build)
    run, length = timed(lambda: rx.dag_longest_path_length(made))
    return Result({"build": seconds, "run": run}, count, float(length))


def networkx() -> Result:
    """End of the job as the longest path; a task's duration is on the edges to what follows it."""
    import networkx as nx

    job = arrays(*SMALL)
    count, seconds = len(job["duration"]), job["duration"].tolist()
    edges = [(b, a, seconds[b]) for b, a in zip(job["before"].tolist(), job["after"].tolist(), strict=True)]
    edges += [(count - 1, count, seconds[count - 1])]
    network = [task for task, needs in enumerate(job["resource"]) if needs == job["resource"][count - 2]]
    edges += [(b, a, seconds[b]) for b, a in pairwise(network)]  # one all-reduce at a time

    def build() -> nx.DiGraph:
        made = nx.DiGraph()
        made.add_weighted_edges_from(edges)
        return made

    building, made = timed(build)
    run, length = timed(lambda: nx.dag_longest_path_length(made))
    return Result({"build": building, "run": run}, count, float(length))


def simpy() -> Result:
    """A process for each worker and one for the network; events where they meet."""
    import simpy as sp

    workers, iterations = SMALL
    own, shared = (array.tolist() for array in durations(workers, iterations))

    def simulate() -> float:
        env = sp.Environment()
        updated = [env.event() for _ in range(iterations)]
        ready = [[[env.event() for _ in range(workers)] for _ in range(LAYERS)] for _ in range(iterations)]

        def worker(w: int) -> Iterator[sp.Event]:
            for i in range(iterations):
                for place in range(2 * LAYERS):
                    yield env.timeout(own[i][place][w])
                    if place >= LAYERS:
                        ready[i][place - LAYERS][w].succeed()
                yield updated[i]

        def network() -> Iterator[sp.Event]:
            for i in range(iterations):
                for place in range(LAYERS):
                    yield env.all_of(ready[i][place])
                    yield env.timeout(shared[i][place])
                yield env.timeout(shared[i][LAYERS])
                updated[i].succeed()

        for w in range(workers):
            env.process(worker(w))
        env.process(network())
        env.run()
        return env.now

    run, now = timed(simulate)
    return Result({"run": run}, iterations * (2 * LAYERS * workers + LAYERS + 1), now)


def simgrid() -> Result:
    """An actor for each worker and one for the network; semaphores where they meet."""
    own, shared = durations(*MEDIUM)
    with tempfile.NamedTemporaryFile() as file:
        own.tofile(file)
        shared.tofile(file)
        file.flush()
        command = [os.environ[SIMGRID], *map(str, MEDIUM), str(LAYERS), file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, end = map(float, done.stdout.split())
    return Result({"run": seconds}, own.size + shared.size, end)


CANDIDATES: dict[str, Callable[[], Result]] = {
    function.__name__: function
    for function in (
        graph, shuffled, replicated, numpy_replicated, what_if, numpy_what_if, rustworkx, networkx, simpy, simgrid,
    )
}  # fmt: skip


# --- report -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One run of one candidate."""

    seconds: dict[str, float]
    count: int
    result: float
    peak_bytes: int

    def rate(self, *parts: str) -> float:
        """Millions a second over the named parts (all, unless some are named)."""
        return self.count / sum(self.seconds[part] for part in parts or self.seconds) / 1e6


def benchmark(scratch: Path, count: int) -> tuple[list, list[str]]:
    """Timings and lines to print."""
    from paired import Timing

    peer = _simgrid_peer(scratch)
    names = [name for name in CANDIDATES if peer or name != "simgrid"]
    runs: dict[str, list[Run]] = {name: [] for name in CANDIDATES}
    for number in range(count):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            runs[name].append(_run(name))
    _agree(runs)
    title = "schedule 3.3 M tasks"
    timings = [
        Timing(title, f"{name}, {part}", number, seconds, run.peak_bytes)
        for name in names
        for number, run in enumerate(runs[name])
        for part, seconds in run.seconds.items()
    ]
    lines = [
        _line("any graph, running", runs["graph"], "run", "tasks", ">= 40 M/s, <= 500 MB"),
        _line("any graph, with building", runs["graph"], "", "tasks", ">= 15 M/s"),
        _line("  numbered at random, running", runs["shuffled"], "run", "tasks"),
        _line("  numbered at random, building too", runs["shuffled"], "", "tasks"),
        _line("template", runs["replicated"], "run", "tasks", ">= 300 M/s, <= 500 MB"),
        _line("  numpy by hand", runs["numpy_replicated"], "run", "tasks"),
        _line("what if", runs["what_if"], "run", "scenarios", ">= 20 M/s"),
        _line("  with finding what it depends on", runs["what_if"], "", "scenarios"),
        _line("  numpy by hand", runs["numpy_what_if"], "run", "scenarios"),
        _line(f"rustworkx, {MEDIUM[0]} workers, running", runs["rustworkx"], "run", "tasks"),
        _line(f"rustworkx, {MEDIUM[0]} workers, with building", runs["rustworkx"], "", "tasks"),
        _line(f"networkx, {SMALL[0]} workers, {SMALL[1]} iterations", runs["networkx"], "run", "tasks"),
        _line(f"simpy, {SMALL[0]} workers, {SMALL[1]} iterations", runs["simpy"], "run", "tasks"),
        *(
            [_line(f"SimGrid, {MEDIUM[0]} workers", runs["simgrid"], "run", "tasks")]
            if peer
            else ["  SimGrid: left out, no C++ compiler or no SimGrid (Debian: apt-get install g++ libsimgrid-dev)"]
        ),
        _ratio("any graph / rustworkx, running", runs["graph"], runs["rustworkx"]),
        _ratio("any graph / simpy, running", runs["graph"], runs["simpy"]),
        _ratio("template / numpy", runs["replicated"], runs["numpy_replicated"]),
        _ratio("what if / numpy", runs["what_if"], runs["numpy_what_if"]),
    ]
    return timings, lines


def _simgrid_peer(folder: Path) -> bool:
    """Whether the peer can be compiled; `SIMGRID` then says where it is."""
    program = folder / "simgrid_peer"
    command = [
        "g++",
        "-O2",
        "-std=c++17",
        str(Path(__file__).with_name("simgrid_peer.cpp")),
        "-o",
        str(program),
        "-lsimgrid",
    ]
    try:
        compiled = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
    os.environ[SIMGRID] = str(program)
    return compiled


def _run(name: str) -> Run:
    done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"benchmark candidate {name} failed:\n{done.stderr}")
    return Run(**json.loads(done.stdout))


def _agree(runs: dict[str, list[Run]]) -> None:
    """No rate is worth anything if the results differ."""
    for ours, others in (("graph", ("shuffled", "replicated", "numpy_replicated")), ("what_if", ("numpy_what_if",))):
        for other in others:
            if not np.isclose(runs[other][0].result, runs[ours][0].result, rtol=1e-9):
                raise SystemExit(f"{other} finds {runs[other][0].result}, {ours} {runs[ours][0].result}")
    if runs["simgrid"] and not np.isclose(runs["simgrid"][0].result, (medium := graph(*MEDIUM).result), rtol=1e-9):
        raise SystemExit(f"simgrid finds {runs['simgrid'][0].result}, graph {medium}")
    small = graph(*SMALL).result
    for other in ("networkx", "simpy"):
        if not np.isclose(runs[other][0].result, small, rtol=1e-9):
            raise SystemExit(f"{other} finds {runs[other][0].result}, graph {small}")


def _line(label: str, runs: Sequence[Run], part: str, unit: str, wanted: str = "") -> str:
    rates = [run.rate(*([part] if part else [])) for run in runs]
    peak = max(run.peak_bytes for run in runs) / 1e6
    target = f", wanted {wanted}" if wanted else ""
    spread = f"({min(rates):.4g}-{max(rates):.4g})"
    return f"  {label:<40}{statistics.median(rates):>9.4g} M {unit}/s  {spread:<18}{peak:>6.0f} MB{target}"


def _ratio(label: str, ours: Sequence[Run], others: Sequence[Run]) -> str:
    ratios = [one.rate("run") / other.rate("run") for one, other in zip(ours, others, strict=True)]
    return f"  {label}: median {statistics.median(ratios):.1f} ({min(ratios):.1f}-{max(ratios):.1f})"


if __name__ == "__main__":
    made = CANDIDATES[sys.argv[1]]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**vars(made), "peak_bytes": peak}))
