"""Cells an hour through Slurm: all cells of a study in turns, in one job, and one job for each cell.

200 cells of a small network on the four nodes of the test cluster. In turns: one call of Snakemake for all of them,
from its start to its end. One job each: a random sample of the cells, each by a call of Snakemake of its own, from
which 200 are extrapolated. Planning takes a part of such a call that a study of 200 jobs would spend once; so there is
a second ratio, in which only the jobs' own time counts, as Slurm's accounts have it, one job after the other.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from paired import Figure, figure
from slow_nodes import NotHere, cluster_up

from stallpoint.slurm.accounting import command, from_sacct
from stallpoint.study.cells import Cell
from stallpoint.study.study import expand

NAME = "cells-per-hour"
WANTED = "at least 10"
SAMPLE = 12
TOGETHER = "in turns, one job"
EACH = "one job for each cell"
NETWORK = """
from torch import nn


def build():
    return nn.Sequential(nn.Embedding(200, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 200))
"""
TEXT = {"sequence_length": 24, "vocabulary": 200}
STUDY: dict[str, Any] = {
    "study": NAME,
    "seed": 1,
    "iterations": 5,
    "warmup": 1,
    "visits": 1,
    "precision": 0,
    "hardware": {"cpu": {"device": "cpu", "nodes": 4}},
    "storage": {"text": {"path": "text", "format": "tokens", "generate": 256, **TEXT}},
    "networks": {"small": {"build": "small.py:build", **TEXT}},
    "matrix": [
        {
            "network": "small", "hardware": "cpu", "nodes": [1, 2, 4], "batch": [8, 16, 32, 64, 128], "storage": "text",
            "scaling": "strong", "sync": ["naive", "wfbp", "caffe-mpi", "mxnet", "ddp"], "prefetch": [0, 1, 2],
        },
    ],
}  # fmt: skip
CELLS = 200
ON_SLURM = (
    "--profile", "slurm", "--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "3",
)  # fmt: skip
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Call:
    """A call of Snakemake that measured cells."""

    seconds: float
    elapsed: float
    """Of that, its Slurm job, s."""
    node_hours: float
    cells: int


def benchmark(scratch: Path, _rounds: int) -> tuple[list[Figure], list[str]]:
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from checkout import Checkout

    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")  # nodes share this machine's cores
    try:
        with cluster_up("cluster.toml"):
            checkout = Checkout(scratch, STUDY)
            (scratch / "small.py").write_text(NETWORK)
            with chdir(scratch):
                cells = _cells()
            _snakemake(checkout, f"results/{NAME}/storage/text.json", f"results/{NAME}/networks/small.parquet")
            sample = random.Random(NAME).sample(cells, SAMPLE)
            each = [_measured(checkout, [cell]) for cell in sample]
            together = _measured(checkout, [cell for cell in cells if cell not in sample])
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"{NAME}: not run: {error}"]
    return _results(together, each)


def _results(together: Call, each: Sequence[Call]) -> tuple[list[Figure], list[str]]:
    def rates(call: Call) -> tuple[float, float, float]:
        """Cells an hour of the call, of the job alone, and for a node-hour."""
        return 3600 * call.cells / call.seconds, 3600 * call.cells / call.elapsed, call.cells / call.node_hours

    ours = rates(together)
    theirs = [rates(call) for call in each]
    words = ("", ", jobs' own time alone", ", for each node-hour")
    figures = [
        figure(
            NAME, TOGETHER, f"times the cells an hour of {EACH}{word}", [mine / one[place] for one in theirs], wanted
        )
        for place, (mine, word, wanted) in enumerate(zip(ours, words, (WANTED, "", ""), strict=True))
    ]
    lines = [f"{NAME}: {together.cells} cells in turns, {len(each)} with a job each, which stand for as many"]
    for name, found in ((TOGETHER, ours), (EACH, [statistics.median(column) for column in zip(*theirs, strict=True)])):
        texts = (f"{rate:.0f} cells an hour{word}" for rate, word in zip(found, words, strict=True))
        lines.append(f"  {name}: {'; '.join(texts)}")
    return figures, [*lines, *(one.line(digits=1) for one in figures)]


def _cells() -> list[Cell]:
    schema = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
    cells = [cell for cell in expand(STUDY, schema).cells.values() if cell.kind == "train"]
    return random.Random(0).sample(cells, CELLS)


def _measured(checkout: Any, cells: Sequence[Cell]) -> Call:
    begin = time.monotonic()
    _snakemake(checkout, *ON_SLURM, *(f"results/{NAME}/raw/{cell.path}" for cell in cells))
    seconds = time.monotonic() - begin
    jobs = pq.read_table(checkout.results("raw", cells[0].path, "slurm_jobs.parquet"))["slurm_job_id"].to_pylist()
    accounts = _accounts(jobs)
    while not all(row["ended"] for row in accounts):  # they are written a little later
        time.sleep(1)
        accounts = _accounts(jobs)
    elapsed, node_hours = (sum(row[column] for row in accounts) for column in ("elapsed", "node_hours"))
    return Call(seconds, elapsed, node_hours, len(cells))


def _accounts(jobs: Sequence[str]) -> list[dict[str, Any]]:
    return from_sacct(subprocess.run(command(jobs), capture_output=True, text=True, check=True).stdout)


def _snakemake(checkout: Any, *arguments: str) -> None:
    ran = checkout.run_snakemake(*arguments)
    if ran.status:
        print(ran.text, file=sys.stderr)
        raise subprocess.CalledProcessError(ran.status, "snakemake")
