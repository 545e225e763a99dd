"""How well 4 and 8 nodes are predicted from 1 and 2, for every preset, on eight slow nodes of a real Slurm cluster.

Runs the study cluster_accuracy.yaml on the test cluster (almost three hours on two cores; what was measured before is
not measured again) and prints its table ``validation``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from paired import Figure, Timing
from slow_nodes import SRUN, NotHere, slow_nodes

from stallpoint import accuracy
from stallpoint.cells import Cell, TrainCell
from stallpoint.parquet import read
from stallpoint.records import VALIDATION
from stallpoint.study import expand

HERE = Path(__file__).parent
STUDY = "cluster-accuracy"
CONFIG = HERE / "cluster_accuracy.yaml"
SCHEMA = HERE.parent / "workflow" / "schemas" / "study.schema.yaml"
SNAKEMAKE = (str(Path(sys.executable).with_name("snakemake")), "--configfile", str(CONFIG))
# Its jobs are short: ask often, and soon.
ON_SLURM = (
    "--profile", "slurm", "--slurm-init-seconds-before-status-checks", "5", "--seconds-between-status-checks", "8",
)  # fmt: skip


def benchmark(_scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    try:
        with slow_nodes() as environment:
            _measure_and_fit(environment)
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"cluster-accuracy: not run, or not to the end: {error}"]
    validation = read(VALIDATION, Path("results") / STUDY / "models" / "validation.parquet").to_pandas()
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


def _measure_and_fit(environment: Mapping[str, str]) -> None:
    """Jobs of one rank through Slurm's queue, several at a time; the others one by one, so that they have the links."""
    by_srun = ("--set-resources", *(f"{kind}:launcher='{SRUN}'" for kind in ("train", "collectives")))
    alone, *together = _blocks()
    for options, targets in [(ON_SLURM, alone), *((by_srun, block) for block in together), (by_srun, ["fit"])]:
        subprocess.run([*SNAKEMAKE, *options, "--quiet", "all", "--", *targets], env=environment, check=True)


def _blocks() -> Iterator[list[str]]:
    """What is measured one after the other: one node, then, repeat by repeat, all-reduces and each preset's cells."""
    study = expand(yaml.safe_load(CONFIG.read_text()), yaml.safe_load(SCHEMA.read_text()))
    blocks: dict[tuple[int, str, str], list[Cell]] = {}
    for cell in study.cells.values():
        several = cell.nodes > 1
        names = (cell.network, cell.sync) if several and isinstance(cell, TrainCell) else ("", "")
        blocks.setdefault((cell.repeat if several else 0, *names), []).append(cell)
    for block in sorted(blocks):
        yield [f"results/{STUDY}/raw/{cell.path}" for cell in blocks[block]]
