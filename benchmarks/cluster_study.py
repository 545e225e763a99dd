"""Studies on slow nodes of a real Slurm cluster: what is predicted of many from few, and a whole report.

What was measured before is not measured again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import yaml
from paired import Figure, Timing
from slow_nodes import NotHere, slow_nodes

from stallpoint.questions import validation_question as accuracy
from stallpoint.records.parquet import read
from stallpoint.records.tables import VALIDATION
from stallpoint.schedule.agenda import Agenda, Limits
from stallpoint.schedule.requested import block_of, inputs_by_config, measurement
from stallpoint.study.cells import Cell
from stallpoint.study.study import Study, expand

HERE = Path(__file__).parent
SCHEMA = HERE.parent / "workflow" / "schemas" / "study.schema.yaml"
# Snakemake measures nothing here, and makes nothing again whatever is newer.
SNAKEMAKE = (
    str(Path(sys.executable).with_name("snakemake")), "--configfile", "{config}", "--quiet", "all",
    "--rerun-triggers", "mtime", "--allowed-rules", "prepare_storage", "describe_network", "collect", "fit",
)  # fmt: skip
ALLOCATION = "salloc --quiet --exclusive --nodes={nodes} --ntasks-per-node={workers_per_node}"
LAUNCHER = (
    "srun --mpi=pmix --overlap --nodes={nodes} --ntasks={ranks} --ntasks-per-node={workers_per_node} "
    "--kill-on-bad-exit=1"
)


def _validation_of(config: Path, cluster: str, scratch: Path) -> pd.DataFrame:
    """The table ``validation`` of the study `config`, measured on the `cluster` of that file in tests/cluster.

    What was measured before is not measured again. Raises `NotHere` or `CalledProcessError`.
    """
    study = expand(yaml.safe_load(config.read_text()), yaml.safe_load(SCHEMA.read_text()))
    results = Path("results") / study.name
    _make(config, study, (f"{results}/storage/{storage}.json" for storage in study.config["storage"]))
    with slow_nodes(cluster) as environment:
        for number, cells in _rounds(study):
            file = scratch / f"round{number}.json"
            _measure(study, cells, results, number, environment, file)
    _make(config, study, ["fit"])
    return read(VALIDATION, results / "models" / "validation.parquet").to_pandas()


Printed = tuple[list[Timing | Figure], list[str]]


def today(scratch: Path, _rounds: int) -> Printed:
    """How well sharded and accumulated training is predicted on 4 slow nodes from 1 and 2.

    Measures the study today.yaml in about 15 minutes (on two cores).
    """
    wanted = "wanted: median |error| at most 5 %, 90th percentile at most 10 %"
    return _predicted("today", "four.toml", scratch, "4 nodes predicted from 1 and 2", wanted)


def cluster_accuracy(scratch: Path, _rounds: int) -> Printed:
    """How well 4 and 8 slow nodes are predicted from 1 and 2, for every preset.

    Measures the study cluster_accuracy.yaml in rounds of about 25 minutes (on two cores), each of which takes every
    cell on several nodes once.
    """
    wanted = "wanted: median |error| at most 3 %, 90th percentile at most 8 %"
    return _predicted("cluster-accuracy", "eight.toml", scratch, "4 and 8 nodes predicted from 1 and 2", wanted)


def cluster_report(_scratch: Path, _rounds: int) -> Printed:
    """Run a study as users of a cluster do, which docs/cluster-report.md reads, and show its conclusions."""
    config = ["--configfile", str(HERE / "cluster_report.yaml")]
    try:
        with slow_nodes("eight.toml") as environment:
            subprocess.run([SNAKEMAKE[0], "--profile", "slurm", *config], env=environment, check=True)
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"cluster-report: not run, or not to the end: {error}"]
    return [], Path("results/cluster-report/conclusions.md").read_text().splitlines()


def _predicted(study: str, cluster: str, scratch: Path, title: str, wanted: str) -> Printed:
    """Predicted over measured times of each place of `_validation_of`, and the table of their errors in words."""
    try:
        validation = _validation_of(HERE / f"{study.replace('-', '_')}.yaml", cluster, scratch)
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"{study}: not run, or not to the end: {error}"]
    head, rows = accuracy.HEAD, list(accuracy.rows(validation))
    widths = [max(len(row[column]) for row in [list(head), *rows]) for column in range(len(head))]
    table = [
        "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in [head, *rows]
    ]
    figures: list[Timing | Figure] = [
        Figure(
            study, f"{row.network} {row.sync} {row.nodes} nodes", "predicted / measured",
            *(seconds / row.measured for seconds in (row.predicted, row.predicted_low, row.predicted_high)),
        )
        for row in validation.itertuples()
    ]  # fmt: skip
    words = (f"  {wanted}", f"  {accuracy.repeatability(validation)}", f"  published: {accuracy.PUBLISHED_ERRORS}")
    return figures, [f"{study}: {title}", *table, *words]


def _make(config: Path, study: Study, targets: Iterable[str]) -> None:
    marking = sorted({f"measure_{block_of(cell)}" for cell in study.cells.values()})
    subprocess.run([*(word.format(config=config) for word in SNAKEMAKE), *marking, "--", *targets], check=True)


def _rounds(study: Study) -> Iterator[tuple[int, list[Cell]]]:
    """The cells of each round, which take turns; as many rounds as the study has repeats.

    Of what it repeats more often, each round has several. The order is another one in every round: what slows the
    machine down for some minutes is not to hit the same cells each time.
    """
    rounds: dict[int, list[Cell]] = {}
    for cell in study.cells.values():
        rounds.setdefault((cell.repeat - 1) % study.config["repeats"], []).append(cell)
    yield from sorted(rounds.items())


def _measure(
    study: Study, cells: Sequence[Cell], results: Path, number: int, environment: Mapping[str, str], file: Path
) -> None:
    """Let the cells take turns that were not measured yet, in one allocation of as many nodes as the largest has."""
    also_of = inputs_by_config(study.config)
    found = [measurement(cell, results / "visits", again=False, inputs=also_of(cell)) for cell in cells]
    left = [one for one in found if not one.done.exists()]
    if not left:
        return
    Agenda.of(left, Limits(), study.config["seed"] + number).write(file)
    most = {name: max(getattr(one.cell, name) for one in left) for name in ("nodes", "workers_per_node")}
    turns = [sys.executable, "scripts/measure.py", str(file), str(file.with_suffix(".log")), LAUNCHER]
    subprocess.run([*ALLOCATION.format(**most).split(), *turns], env=environment, check=True)
