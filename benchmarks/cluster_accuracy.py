"""How well 4 and 8 nodes are predicted from 1 and 2, for every preset, on eight slow nodes of a real Slurm cluster.

Measures the study cluster_accuracy.yaml on the test cluster in rounds of about 25 minutes (on two cores), each of which
takes every cell on several nodes once; what was measured before is not measured again. Prints its table ``validation``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from random import Random

import in_turns
import yaml
from paired import Figure, Timing
from slow_nodes import SRUN, NotHere, slow_nodes

from stallpoint import accuracy
from stallpoint.cells import Cell
from stallpoint.measure.job import reduction_of
from stallpoint.measure.mpi_parameters import forced
from stallpoint.parquet import read
from stallpoint.records import VALIDATION
from stallpoint.study import Study, expand

HERE = Path(__file__).parent
STUDY = "cluster-accuracy"
RESULTS = Path("results") / STUDY
CONFIG = HERE / "cluster_accuracy.yaml"
SCHEMA = HERE.parent / "workflow" / "schemas" / "study.schema.yaml"
# Snakemake's rules did not measure the cells, and must not do so again, whatever is newer than their records.
SNAKEMAKE = (
    str(Path(sys.executable).with_name("snakemake")), "--configfile", str(CONFIG), "--quiet", "all",
    "--rerun-triggers", "mtime", "--allowed-rules", "prepare_storage", "describe_network", "collect", "fit", "--",
)  # fmt: skip


def benchmark(scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    try:
        study = expand(yaml.safe_load(CONFIG.read_text()), yaml.safe_load(SCHEMA.read_text()))
        _make(f"{RESULTS}/storage/{storage}.json" for storage in study.config["storage"])
        with slow_nodes() as environment:
            for cells in _jobs(study):
                _measure(cells, environment, scratch / "cells.json")
        _make(["fit"])
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"cluster-accuracy: not run, or not to the end: {error}"]
    validation = read(VALIDATION, RESULTS / "models" / "validation.parquet").to_pandas()
    head, rows = accuracy.HEAD, accuracy.rows(validation)
    widths = [max(len(row[column]) for row in [list(head), *rows]) for column in range(len(head))]
    table = [
        "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in [head, *rows]
    ]
    figures: list[Timing | Figure] = [
        Figure(
            STUDY, f"{row.network} {row.sync} {row.nodes} nodes", "predicted / measured",
            *(seconds / row.measured for seconds in (row.predicted, row.predicted_low, row.predicted_high)),
        )
        for row in validation.itertuples()
    ]  # fmt: skip
    wanted = "  wanted: median |error| at most 3 %, 90th percentile at most 8 %"
    title = f"{STUDY}: 4 and 8 nodes predicted from 1 and 2"
    words = (wanted, f"  {accuracy.repeatability(validation)}", f"  published: {accuracy.PUBLISHED}")
    return figures, [title, *table, *words]


def _make(targets: Iterable[str]) -> None:
    subprocess.run([*SNAKEMAKE, *targets], check=True)


def _jobs(study: Study) -> Iterator[list[Cell]]:
    """The cells of each job, round by round; MPI is told before it starts which scheme to reduce by.

    There are as many rounds as the study has repeats; of what it repeats more often, each has several. What is to be
    compared stays together, on more and more nodes. The rest has another order in every round: what slows the machine
    down for some minutes is not to hit the same cells each time.
    """
    jobs: dict[tuple[int, str], dict[str, list[Cell]]] = {}
    for cell in sorted(study.cells.values(), key=attrgetter("nodes")):
        alike = replace(cell, nodes=0).path
        number = (cell.repeat - 1) % study.config["repeats"]
        jobs.setdefault((number, forced(reduction_of(cell))), {}).setdefault(alike, []).append(cell)
    for place, job in sorted(jobs.items()):
        together = list(job.values())
        Random(str(place)).shuffle(together)
        yield list(chain.from_iterable(together))


def _measure(cells: Sequence[Cell], environment: Mapping[str, str], file: Path) -> None:
    in_turns.write(cells, file)
    most = max(cell.nodes for cell in cells)
    srun = SRUN.format(nodes=most, ranks=most).split()
    subprocess.run(
        [*srun, sys.executable, in_turns.__file__, str(RESULTS / "raw"), str(file)], env=environment, check=True
    )
