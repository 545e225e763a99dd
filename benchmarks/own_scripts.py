"""Scripts of one's own, as a study measures them and by hand: the same samples/s, and the same gain of a second worker?

By hand, torchrun starts the script as its users do, with one thread for each worker; its probe does nothing, and the
time from update to update is taken. In the study, the script is a command cell under the variables that Snakemake's
shell sets. Both take turns.

usage, as a part of it, under torchrun: own_scripts.py FILE UPDATES SCRIPT [ARGUMENT ...]
"""

from __future__ import annotations

import os
import runpy
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from paired import Figure, Timing, figure, interleaved

from stallpoint.records.parquet import read
from stallpoint.records.tables import ITERATIONS
from stallpoint.schedule.processes import LOCAL_LAUNCHER, Processes, VisitRequest
from stallpoint.study.commands import THREAD_VARIABLES
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.study import expand

ROOT = Path(__file__).parents[1]
SCRIPTS = {
    "CNN": ("examples/ddp.py --batch {worker_batch}", 128),
    "Trainer (transformers)": ("examples/trainer.py --batch {worker_batch}", 64),
    "Lightning": ("examples/lightning_ddp.py --batch {worker_batch}", 128),
}
"""Script with its arguments, and samples of a mini-batch."""
WARMUP, UPDATES = 3, 15
BY_HAND, STUDY = "by hand", "study"
WORKERS = (1, 2)


def benchmark(scratch: Path, count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Each script on one and two workers, by hand and as a study."""
    rows: list[Timing | Figure] = []
    lines = [f"{'own scripts, samples/s':<26}{'workers':>8}{'by hand':>22}{'study':>22}   study over by hand"]
    for name in SCRIPTS:
        candidates: dict[str, Callable[[], float]] = {
            f"{way}, {workers}": run
            for workers in WORKERS
            for way, run in _ways(cell_of(name, workers), scratch).items()
        }
        timings = interleaved(f"own-scripts: {name}", candidates, count)
        found = {
            candidate: [timing.seconds for timing in timings if timing.candidate == candidate]
            for candidate in candidates
        }
        of = {key: [cell_of(name, 1).global_batch / one for one in seconds] for key, seconds in found.items()}
        quotients = {}
        for workers in WORKERS:
            by_hand, study = of[f"{BY_HAND}, {workers}"], of[f"{STUDY}, {workers}"]
            quotients[workers] = [one / other for one, other in zip(study, by_hand, strict=True)]
            here = figure(timings[0].benchmark, STUDY, f"samples/s over by hand, {workers}", quotients[workers], "1")
            rows.append(here)
            lines.append(f"{name:<26}{workers:>8}{_range(by_hand):>22}{_range(study):>22}   {_ends(here)}")
        gains = {
            way: [two / one for one, two in zip(of[f"{way}, 1"], of[f"{way}, 2"], strict=True)]
            for way in (BY_HAND, STUDY)
        }
        ratio = [two / one for one, two in zip(quotients[1], quotients[2], strict=True)]
        here = figure(timings[0].benchmark, STUDY, "gain of a second worker over that by hand", ratio, "1")
        lines.append(f"{name:<26}{'gain':>8}{_range(gains[BY_HAND]):>22}{_range(gains[STUDY]):>22}   {_ends(here)}")
        rows += [*timings, here]
    return rows, lines


def _range(values: Sequence[float]) -> str:
    digits = 2 if max(values) < 10 else 0
    middle, low, high = (f"{one:,.{digits}f}" for one in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({low}-{high})"


def _ends(found: Figure) -> str:
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def cell_of(name: str, workers: int) -> CommandCell:
    """The script as a cell of a study."""
    run, batch = SCRIPTS[name]
    python = shlex.quote(sys.executable)
    config = {
        "study": "own-scripts",
        "iterations": UPDATES,
        "warmup": WARMUP,
        "visits": 1,
        "hardware": {"cpu": {"device": "cpu", "nodes": 1, "workers_per_node": workers}},
        "commands": {"mine": {"run": f"{python} {ROOT}/{run}", "launch": "torchrun"}},
        "matrix": [
            {
                "network": "mine",
                "hardware": "cpu",
                "nodes": [1],
                "batch": batch,
                "scaling": "strong",
                "sync": "ddp",
                "prefetch": 0,
            }
        ],
    }
    schema = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
    cells = [cell for cell in expand(config, schema).cells.values() if isinstance(cell, CommandCell)]
    return next(cell for cell in cells if cell.ranks == workers)


def _ways(cell: CommandCell, scratch: Path) -> dict[str, Callable[[], float]]:
    """What gives the median seconds of an update, by hand and by a visit of a study."""

    def by_hand() -> float:
        _, script, *arguments = shlex.split(cell.run.format(worker_batch=cell.worker_batch))
        file = scratch / "by-hand"
        command = ["torchrun", "--nproc-per-node", str(cell.ranks), __file__, str(file), str(WARMUP + UPDATES), script]
        mine = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
        subprocess.run(
            [*command, *arguments],
            env={**mine, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            check=True,
            capture_output=True,
        )
        return float(file.read_text())

    def study() -> float:
        folder = scratch / f"visit~{time.monotonic_ns()}"
        os.environ |= dict.fromkeys(THREAD_VARIABLES, str(os.cpu_count()))  # as Snakemake's shell does
        processes = Processes([cell], cell.scheme, launcher=LOCAL_LAUNCHER, log=scratch / "log")
        try:
            (problem,) = processes.visit(VisitRequest(cell, folder, visit=1, position=1))
        finally:
            processes.end()
        if problem:
            raise SystemExit(problem)
        rows = read(ITERATIONS, folder / f"{ITERATIONS.name}.parquet").to_pandas().query("not warmup")
        return float(rows.groupby("iteration")["iteration_time"].max().median())

    return {BY_HAND: by_hand, STUDY: study}


# --- by hand --------------------------------------------------------------------------------------


def _timed(file: Path, updates: int, script: str, arguments: Sequence[str]) -> None:
    """Run the script with probes that do nothing, until it has made so many updates, and write their median time."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    import stallpoint

    def callback() -> Any:
        from lightning.pytorch import Callback

        return Callback()

    stallpoint.probe = lambda *_, **__: nullcontext(SimpleNamespace(step=lambda: None))
    stubs = {"huggingface": {"probe": lambda _: None}, "pytorch_lightning": {"ProbeCallback": callback}}
    sys.modules |= {f"stallpoint.measure.probe.{name}": SimpleNamespace(**stub) for name, stub in stubs.items()}
    ends: list[float] = []

    def updated(*_: Any) -> None:
        ends.append(time.perf_counter())
        if len(ends) == updates:
            took = [end - begin for begin, end in zip(ends[WARMUP - 1 :], ends[WARMUP:], strict=False)]
            if os.environ["RANK"] == "0":
                file.write_text(str(statistics.median(took)))
            time.sleep(1)  # the others still receive the last gradients
            os._exit(0)

    register_optimizer_step_post_hook(updated)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    path, number, program, *rest = sys.argv[1:]
    _timed(Path(path), int(number), program, rest)
