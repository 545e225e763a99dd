"""Histories of a study on the Slurm cluster, drawn at random: whatever happens, every cell is recorded once.

``python -m cluster_histories [--examples N] [--faults N] [--seed N]`` prints one JSON line for each kind
of fault (`Tally`). Of a history, each run of ``snakemake --profile slurm`` meets one fault at a moment drawn at random:
Snakemake or the job is killed, cancelled or requeued, a node is lost, its link cut, the controller restarted, the
training data removed. Then all is mended, and one more run must end well, with every cell of the study recorded once,
none of them failed, no finished visit lost, and no job left in the queue.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from checkout import ON_SLURM, Checkout
from cluster import Cluster, ClusterError, Host, processes_in, queue, run, start, wait_until
from tally import Tally, as_program

from stallpoint.records.parquet import read
from stallpoint.records.tables import RUNS, VISITS

NETWORK = """
from torch import nn


def small():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 10))
"""
STUDY: dict[str, Any] = {
    "study": "history", "seed": 1, "iterations": 4, "warmup": 1, "visits": 4, "precision": 0,
    "networks": {"small": {"build": "nets.py:small", "image_size": 32}},
    "hardware": {"cpu": {"device": "cpu", "nodes": 4}},
    "storage": {"jpeg": {"path": "images", "format": "files", "generate": 16}},
    "matrix": [
        {"network": "small", "hardware": "cpu", "nodes": [1, 2, 4], "batch": 4, "storage": "jpeg", "scaling": "strong"},
        {"network": "small", "hardware": "cpu", "nodes": [2, 4], "batch": 4, "storage": "jpeg", "scaling": "compute"},
    ],
    "collectives": {"largest": 65536, "samples": 2},
    "storage_reads": {"samples": 4},
}  # fmt: skip
CHECKED = "results/history/tables/runs.parquet"
LATEST = 60.0
"""Seconds from the beginning of a run within which its fault comes: about what a run without one takes."""
PATIENCE = 1800.0
"""Seconds after which a run counts as hanging: it may wait five minutes for Slurm, and the machine may be busy."""


class History:
    """One study on the cluster, and what happens to it."""

    def __init__(self, cluster: Cluster, folder: Path, draw: random.Random) -> None:
        self.cluster, self.draw = cluster, draw
        self.checkout = Checkout(folder, STUDY)
        (folder / "nets.py").write_text(NETWORK)
        self.finished: set[str] = set()
        self.said = ""
        self.faults: dict[str, Callable[[subprocess.Popen[str]], None]] = {
            "Snakemake killed": lambda running: running.kill(),
            "Ctrl-C": lambda running: running.send_signal(signal.SIGINT),
            "job cancelled": lambda _: self.each_job("scancel"),
            "job requeued": lambda _: self.each_job("scontrol", "requeue"),
            "node lost": lambda _: self.node_lost(),
            "link cut": lambda _: self.link_cut(),
            "controller restarted": lambda _: self.controller_restarted(),
            "storage removed": lambda _: shutil.rmtree(folder / "images", ignore_errors=True),
        }

    # --- what happens -------------------------------------------------------------------------------

    def each_job(self, *command: str) -> None:
        for job in queue():
            with suppress(ClusterError):  # it may have ended meanwhile
                run(*command, job)

    def node_lost(self) -> None:
        """A node is gone with all that runs on it, and comes back."""
        node = self.node()
        # Slurm itself finds out after its SlurmdTimeout, 300 s.
        run("scontrol", "update", f"nodename={node.name}", "state=down", "reason=lost")
        for process in processes_in(node.namespace):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(self.draw.uniform(1, 20))
        start(node, "slurmd", "-N", node.name)
        with suppress(ClusterError):  # it came back by itself
            run("scontrol", "update", f"nodename={node.name}", "state=resume")

    def link_cut(self) -> None:
        node = self.node()
        run("ip", "link", "set", node.port, "down")
        time.sleep(self.draw.uniform(1, 40))
        run("ip", "link", "set", node.port, "up")

    def controller_restarted(self) -> None:
        for process in processes_in(self.cluster.controller.namespace):
            with suppress(OSError):
                if Path("/proc", str(process), "comm").read_text().strip() == "slurmctld":
                    os.kill(process, self.draw.choice([signal.SIGTERM, signal.SIGKILL]))
        time.sleep(self.draw.uniform(1, 20))
        start(self.cluster.controller, "slurmctld")
        wait_until(self.cluster.is_up, 120, "the controller does not come back")

    def node(self) -> Host:
        return self.draw.choice(self.cluster.nodes)

    # --- runs ---------------------------------------------------------------------------------------

    def run(self, fault: str | None) -> tuple[int | None, str]:
        """One run with the fault; its exit status (None: it hung) and what it said."""
        moment = self.draw.uniform(1, LATEST)
        gone = self.checkout.results("storage/jpeg.json").exists() and not (self.checkout.folder / "images").exists()
        again = ["-R", "prepare_storage"] if gone else []  # as the message advises
        with (
            tempfile.TemporaryFile("w+") as said,
            self.checkout.start_snakemake(*ON_SLURM, *again, "--", CHECKED, said=said) as running,
        ):
            if fault:
                with suppress(subprocess.TimeoutExpired):
                    running.wait(moment)
                if running.poll() is None:
                    self.faults[fault](running)
            with suppress(subprocess.TimeoutExpired):
                running.wait(PATIENCE)
            status = running.poll()
            running.kill()
            running.wait()
            said.seek(0)
            return status, said.read()

    def mend(self) -> None:
        """What a user would do before the next run."""
        self.checkout.snakemake("--unlock")
        for node, state in self.cluster.states().items():
            if state.startswith(("down", "drain")):
                with suppress(ClusterError):
                    run("scontrol", "update", f"nodename={node}", "state=resume")
        wait_until(self.cluster.is_up, 180, f"nodes do not come back: {self.cluster.states()}")

    # --- what must hold -----------------------------------------------------------------------------

    def lost(self) -> set[str]:
        """Finished visits that were there before and are neither there nor in a record."""
        visits = self.checkout.results("visits")
        there = {str(file.parent.relative_to(visits)) for file in visits.rglob("visit~*/runs.parquet")}
        recorded = {str(file.parent.relative_to(visits)) for file in visits.rglob("record")}
        gone = {visit for visit in self.finished - there if str(Path(visit).parent) not in recorded}
        self.finished |= there
        return gone

    def wrong_at_the_end(self) -> list[str]:
        """What does not hold of the results; nothing where every cell is there exactly once."""
        folder = self.checkout.folder / Path(CHECKED).parent
        runs = read(RUNS, folder / "runs.parquet").to_pandas()
        visits = read(VISITS, folder / "visits.parquet").to_pandas()
        wrong = [f"{row.cell} failed: {row.reason}" for row in runs.itertuples() if row.status != "ok"]
        if runs["cell"].duplicated().any() or visits.duplicated(["cell", "visit", "rank"]).any():
            wrong.append("a cell or visit is there twice")
        for cell, rows in visits.groupby("cell"):
            numbers = sorted(set(rows["visit"]))
            if len(numbers) < STUDY["visits"] or len(rows) != len(numbers) * rows["ranks"].iloc[0]:
                wrong.append(f"{cell}: visits {numbers} with {len(rows)} rows")
        if jobs := queue():
            wrong.append(f"jobs are left in the queue: {jobs}")
        return wrong

    def meet(self, fault: str | None, tally: Tally) -> list[str]:
        """One run with the fault, or the last one without; what is wrong, in words."""
        tally.trials += 1
        status, self.said = self.run(fault)
        tally.hangs += status is None
        wrong = ["it hangs"] if status is None else []
        if "Traceback" in self.said:
            wrong.append("a traceback")
        self.mend()
        lost = [f"lost: {visit}" for visit in sorted(self.lost())]
        if not fault:
            lost += [f"the last run ended with {status}"] if status else self.wrong_at_the_end()
        tally.lost += bool(lost)
        return wrong + lost

    def keep(self, target: Path) -> None:
        """Keep all of it, to be looked into."""
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.checkout.folder, target, symlinks=True)
        (target / "said").write_text(self.said)


def histories(examples: int, faults: int, seed: int) -> Iterable[Tally]:
    """Draw so many histories, each with so many faults."""
    tallies: dict[str, Tally] = {}
    with Cluster.running().kept_up() as cluster:
        for example in range(examples):
            draw = random.Random(f"{seed} {example}")
            with tempfile.TemporaryDirectory(prefix="stallpoint-history-") as scratch:
                history = History(cluster, Path(scratch), draw)
                chosen = [draw.choice(list(history.faults)) for _ in range(faults)]
                begin = time.monotonic()
                for fault in [*chosen, None]:
                    name = fault or "run again"
                    tally = tallies.setdefault(name, Tally("cluster history", name))
                    if wrong := history.meet(fault, tally):
                        kept = Path(tempfile.gettempdir(), f"stallpoint-history-{seed}-{example}")
                        history.keep(kept)
                        where = f"seed {seed}, history {example} ({', '.join(chosen)}), {name} ({kept})"
                        tally.red += [f"{where}: {one}" for one in wrong]
            print(f"history {example}: {chosen} in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return tallies.values()


if __name__ == "__main__":
    as_program(histories, __doc__, examples=3, faults=3)
