"""Jobs that end early, one study through all of it: what was finished is kept, and the next job goes on with it.

The network stands nearly still once as many visits to it have ended as the test lets through (`site_study`): whatever
happens, happens in the middle of the next visit.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from checkout import ON_SLURM, Checkout, Ran
from cluster import queue, run, wait_until
from hosts import PATIENCE
from site_study import BLOCK

from stallpoint.records.parquet import read
from stallpoint.records.tables import ITERATIONS, RUNS, SLURM_JOBS, VISITS

pytestmark = pytest.mark.cluster

COUNT = 200
"""Iterations of a visit: 100 s where the network stands nearly still."""
CELL = {**BLOCK, "network": "held", "nodes": 2, "sync": "wfbp", "prefetch": 0, "iterations": COUNT}
PATH = (
    "train/network~held/hardware~cpu/nodes~2/workers_per_node~1/batch~4/storage~digits/"
    "scaling~strong/sync~wfbp/prefetch~0/repeat~1"
)
TARGET = f"results/small/raw/{PATH}"
WANTED = 4


@dataclass
class Long:
    """The finished study with one cell more, whose visits are let through one by one."""

    study: Checkout

    @property
    def log(self) -> Path:
        """What the processes of its job say."""
        return self.study.folder / "logs/small/schedule/cpu.log"

    def let_through(self, visits: int) -> None:
        """Let so many visits end, those included that have ended."""
        (self.study.folder / "held").write_text(str(visits))

    def visits(self) -> dict[str, int]:
        """When each finished visit was written, in ns, by its folder."""
        return {str(one): one.stat().st_mtime_ns for one in self.study.results("visits", PATH).glob("*/visit~*")}

    def wait_in_visit(self, number: int, begun: int) -> None:
        """Wait until the cell is trained in the visit of this `number`, and its job has begun so many."""

        def is_in_visit() -> bool:
            said = self.log.read_text() if self.log.exists() else ""
            return len(self.visits()) == number - 1 and said.count("iteration 1/") == begun

        wait_until(is_in_visit, PATIENCE, f"visit {number} does not begin")

    def saved(self, event: Callable[[], object]) -> bool:
        """Whether this `event` leaves iterations of the visit in which it ends the processes.

        Those of one rank, at least: Slurm kills the others as soon as one has ended.
        """
        folder = self.study.results("interrupted", PATH)
        shutil.rmtree(folder, ignore_errors=True)
        event()
        wait_until(lambda: any(self._rows(folder)), PATIENCE, "no rank saved anything")
        return all(0 < len(read(ITERATIONS, file)) < COUNT for file in self._rows(folder))

    @staticmethod
    def _rows(folder: Path) -> Iterator[Path]:
        return folder.glob(f"rank~*.{ITERATIONS.name}.parquet")

    @contextmanager
    def measured_again(self) -> Iterator[Future[Ran]]:
        """How Snakemake will end that measures the cell; after the block nothing is held back any more."""
        with ThreadPoolExecutor() as pool:
            try:
                yield pool.submit(self.study.run_snakemake, *ON_SLURM, TARGET)
            finally:
                self.let_through(sys.maxsize)


@pytest.fixture
def long(finished: Checkout) -> Iterator[Long]:
    """The study with that cell, which is taken out again; no job is left in the end."""
    finished.write_study(include=[CELL], visits=WANTED)
    one = Long(finished)
    one.log.unlink(missing_ok=True)
    yield one
    if jobs := queue():
        run("scancel", *jobs)
    finished.write_study()
    for folder in ("raw", "visits"):
        shutil.rmtree(finished.results(folder, PATH), ignore_errors=True)


def test_no_finished_visit_is_lost_or_made_again_whatever_ends_its_job(long: Long) -> None:
    """Snakemake is killed, a rank dies, and a job is cancelled."""
    made: list[dict[str, int]] = [{}]
    long.let_through(1)
    with long.study.start_snakemake(*ON_SLURM, TARGET) as killed:
        long.wait_in_visit(2, begun=2)
        jobs = queue()
        killed.kill()
    made.append(long.visits())
    said = subprocess.check_output([sys.executable, "scripts/progress.py"], cwd=long.study.folder, text=True)
    assert f"  cpu: job {jobs[0]} is running; " in said
    assert long.study.snakemake("--unlock").status == 0

    with long.measured_again() as ending:
        assert long.saved(lambda: wait_until(lambda: queue() not in ([], jobs), PATIENCE, "no other job"))
        jobs += queue()
        assert len(jobs) == 2, "never two at once"

        long.wait_in_visit(2, begun=1)
        assert long.saved(lambda: kill_rank(1))
        long.wait_in_visit(2, begun=2)
        assert "rank 1 was killed (signal 9), reason unknown: visited once more" in long.log.read_text()

        long.let_through(2)
        long.wait_in_visit(3, begun=3)
        made.append(long.visits())
        assert long.saved(lambda: run("scancel", jobs[1]))
        made.append(long.visits())
    ran = ending.result()
    assert ran.status == 0, ran.text
    assert f"job {jobs[0]} (measure_cpu) was left behind by an earlier run: cancelled" in ran.text
    assert re.findall("SLURM status is: '(.*?)'", ran.text) == ["CANCELLED"]
    for nobody_acts_on in ("Traceback", "SLURM account", "RuntimeWarning"):
        assert nobody_acts_on not in ran.text
    assert list(map(len, made)) == [0, 1, 2, 2]
    for before, after in pairwise(made):
        assert before.items() <= after.items(), "finished visits are as they were"
    check_record(long.study.results("raw", PATH), jobs)


def check_record(record: Path, jobs: list[str]) -> None:
    """The record holds every visit once, and tells of these jobs and the one that went to the end."""
    rows = read(VISITS, record / f"{VISITS.name}.parquet").to_pandas()
    ranks = rows[rows["rank"] == 0]
    assert ranks["visit"].tolist() == list(range(1, len(ranks) + 1))
    assert len(ranks) >= WANTED
    assert ranks["started"].is_monotonic_increasing
    assert rows["concurrent"].eq(0).all()
    found = read(SLURM_JOBS, record / f"{SLURM_JOBS.name}.parquet")["slurm_job_id"].to_pylist()
    assert found[:-1] == jobs
    assert len(set(found)) == len(jobs) + 1


@pytest.mark.night
def test_a_cell_whose_rank_dies_twice_is_a_result_and_the_study_goes_on(long: Long) -> None:
    long.let_through(0)
    with long.measured_again() as ending:
        for begun in (1, 2):
            long.wait_in_visit(1, begun)
            kill_rank(1)
        assert ending.result().status == 0
    (row,) = read(RUNS, long.study.results("raw", PATH, f"{RUNS.name}.parquet")).to_pylist()
    assert row["status"] == "failed"
    assert row["reason"].startswith("rank 1 was killed (signal 9) twice")


def kill_rank(rank: int) -> None:
    """Kill the measuring process that Slurm counts as this task."""
    (found,) = (
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if b"stallpoint.measure\0" in _proc(process, "cmdline")
        and f"SLURM_PROCID={rank}".encode() in _proc(process, "environ").split(b"\0")
        and b"srun" not in _proc(process, "cmdline")
    )
    os.kill(found, signal.SIGKILL)


def _proc(process: Path, file: str) -> bytes:
    try:
        return (process / file).read_bytes()
    except OSError:  # it has ended
        return b""
