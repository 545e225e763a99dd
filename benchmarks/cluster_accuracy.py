"""How well 4 and 8 nodes are predicted from 1 and 2, for every preset, on eight slow nodes of a real Slurm cluster.

Measures the study cluster_accuracy.yaml on the test cluster in rounds of about 25 minutes (on two cores), each of which
takes every cell on several nodes once; what was measured before is not measured again. Prints its table ``validation``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml
from paired import Figure, Timing
from slow_nodes import NotHere, slow_nodes

from stallpoint import accuracy
from stallpoint.cells import Cell
from stallpoint.parquet import read
from stallpoint.records import VALIDATION
from stallpoint.study import Study, expand
from stallpoint.turns.agenda import Agenda, Limits
from stallpoint.turns.targets import measurement

HERE = Path(__file__).parent
STUDY = "cluster-accuracy"
RESULTS = Path("results") / STUDY
CONFIG = HERE / "cluster_accuracy.yaml"
SCHEMA = HERE.parent / "workflow" / "schemas" / "study.schema.yaml"
# Snakemake measures nothing here: it copies the records of cells that took turns, whatever is newer than these.
SNAKEMAKE = (
    str(Path(sys.executable).with_name("snakemake")), "--configfile", str(CONFIG), "--quiet", "all",
    "--rerun-triggers", "mtime", "--allowed-rules", "prepare_storage", "describe_network", "train", "sgemm",
    "collectives", "storage", "collect", "fit", "--",
)  # fmt: skip
ALLOCATION = "salloc --quiet --exclusive --nodes={nodes} --ntasks-per-node=1"
LAUNCHER = "srun --mpi=pmix --overlap --nodes={nodes} --ntasks={ranks} --kill-on-bad-exit=1"


def benchmark(scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    try:
        study = expand(yaml.safe_load(CONFIG.read_text()), yaml.safe_load(SCHEMA.read_text()))
        _make(f"{RESULTS}/storage/{storage}.json" for storage in study.config["storage"])
        with slow_nodes() as environment:
            for number, cells in _rounds(study):
                _measure(cells, study.config["seed"] + number, environment, scratch / f"round{number}.json")
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


def _rounds(study: Study) -> Iterator[tuple[int, list[Cell]]]:
    """The cells of each round, which take turns; as many rounds as the study has repeats.

    Of what it repeats more often, each round has several. The order is another one in every round: what slows the
    machine down for some minutes is not to hit the same cells each time.
    """
    rounds: dict[int, list[Cell]] = {}
    for cell in study.cells.values():
        rounds.setdefault((cell.repeat - 1) % study.config["repeats"], []).append(cell)
    yield from sorted(rounds.items())


def _measure(cells: Sequence[Cell], seed: int, environment: Mapping[str, str], file: Path) -> None:
    """Let the cells take turns that were not measured yet, in one allocation of as many nodes as the largest has."""
    found = [measurement(cell, RESULTS / "visits", again=False) for cell in cells]
    left = [one for one in found if not one.done.exists()]
    if not left:
        return
    Agenda.of(left, Limits(), seed).write(file)
    most = max(one.cell.nodes for one in left)
    turns = [sys.executable, "scripts/take_turns.py", str(file), str(file.with_suffix(".log")), LAUNCHER]
    subprocess.run([*ALLOCATION.format(nodes=most).split(), *turns], env=environment, check=True)
