"""Records with one altered value and matching checksums: impossible ones must be refused, harmless ones collected.

``python -m altered [--values N] [--seed N]`` prints a JSON line (`Tally`) for each kind of alteration. What is
impossible is written down here by what columns mean, not taken from `stallpoint.study.bounds`.
"""

from __future__ import annotations

import math
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from small_study import study
from tally import Tally, as_program
from whole_records import STARTED, measured

from stallpoint.errors import InputError
from stallpoint.records import tables
from stallpoint.records.parquet import read, write, write_cell
from stallpoint.records.tables import CONTENTION, RUNS, SLURM_JOBS, TABLES, TIDY_TABLES, Column, Table
from stallpoint.study.cells import Cell
from stallpoint.study.collect import collect_all
from stallpoint.study.job_kind import run_row
from stallpoint.study.kinds import kind_of

ANY_SIGN = {
    "preparing",
    "timing_cost",
    "timing_share",
    "loss",
    "bucket",
    "train_loss",
    "validation_loss",
    "loss_gap",
    "accuracy_gap",
    "sharpness",
}
NOT_OF_A_VISIT = {"runs", "staging", "conversions", "product_before", "product_after", "communication"}
"""Tables, and columns, whose durations may be as long as they like."""
SHARES = ("resident",)
Draw = random.Random
Fits = Callable[[Table, Column], bool]
Alter = Callable[[list[Any], int, Draw], None]


@dataclass(frozen=True)
class Alteration:
    """What is done to columns of one kind; a value that is `impossible` must be refused by name."""

    name: str
    fits: Fits
    alter: Alter
    """Changes the values of a column in place, at a row."""
    impossible: bool = True


def _set(*values: object) -> Alter:
    def alter(found: list[Any], row: int, draw: Draw) -> None:
        found[row] = draw.choice(values)

    return alter


def _times(*factors: float) -> Alter:
    def alter(found: list[Any], row: int, draw: Draw) -> None:
        found[row] = type(found[row])(found[row] * draw.choice(factors))

    return alter


def _all(change: Callable[[list[Any]], list[Any]]) -> Alter:
    def alter(found: list[Any], row: int, draw: Draw) -> None:
        found[:] = change(found)

    return alter


def _number(column: Column) -> bool:
    return column.type in (tables.INT, tables.REAL)


def _harmless(name: str, fits: Fits, alter: Alter) -> Alteration:
    return Alteration(f"harmless: {name}", fits, alter, impossible=False)


def _named(*names: str) -> Fits:
    """Columns by ``table.column``."""
    return lambda table, column: f"{table.name}.{column.name}" in names


def _trained(name: str) -> Fits:
    return _named(f"iterations.{name}", f"intervened.{name}")


ALTERATIONS = [
    Alteration("below 0", lambda _, one: _number(one) and one.name not in ANY_SIGN, _set(-1, -5, -(10**9))),
    Alteration("infinite", lambda _, one: one.type == tables.REAL and one.name not in ANY_SIGN, _set(math.inf)),
    Alteration(
        "31 years",
        lambda table, one: one.unit == "s" and not {table.name, one.name} & (NOT_OF_A_VISIT | ANY_SIGN),
        _set(1e9, 1e12),
    ),
    Alteration(
        "another century",
        lambda _, one: pa.types.is_timestamp(one.type),
        _set(datetime(1969, 7, 20, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)),
    ),
    Alteration("control characters", lambda _, one: one.type == tables.TEXT, _set("\x1b]0;x\x07", "\x9b3m", "\u202ea")),
    Alteration("more than a whole", lambda _, one: one.name in SHARES, _set(9.0, 1.5)),
    Alteration("more threads", _named("environments.threads", "visits.threads"), _set(64)),
    Alteration("no core", _named("environments.cores_available"), _set(0, -3)),
    Alteration("warm-up last", _trained("warmup"), _all(lambda all: [not one for one in all])),
    Alteration("starts equal", _trained("start"), _all(lambda all: [0.0] * len(all))),
    Alteration("shorter than its parts", _trained("iteration_time"), _times(0.01, 0.5)),
    Alteration("longer than its visit", _trained("iteration_time"), _set(600.0, 1e6)),
    Alteration("longer than its whole", _named("visits.measuring"), _set(1100.0, 5000.0)),
    Alteration("longer than its iteration", _named("layers.forward", "layers.all_reduce_end"), _set(20.0)),
    Alteration("ends before it starts", _named("layers.all_reduce_end", "layers.gather_end"), _set(0.5, 0.0)),
    Alteration("visits reversed", _named("visits.visit", "visits.started"), _all(lambda all: all[::-1])),
    Alteration("a run shorter than its visits", _named("runs.duration"), _set(1e-9, 1.0)),
    Alteration("another rate", _named("sgemm.gflops"), _times(2, 0.5)),
    Alteration("another size", _named("layers.gradient_bytes"), _set(4, 2**30)),
    Alteration("weights beyond memory", _named("peak_memory.weights"), _set(10**12)),
    _harmless("unchanged", lambda *_: True, _all(list)),
    _harmless("a load", _named("environments.load_average"), _set(0.0, 50.0)),
    _harmless("another name", _named("environments.cpu_model", "environments.kernel"), _set("é <b>")),
    _harmless("diverged", _named("iterations.loss"), _set(math.nan, math.inf, -3.0)),
    _harmless("unknown", _named("iterations.frequency", "iterations.steal"), _set(None)),
    _harmless("a little faster", _named("layers.forward", "iterations.forward"), _times(0.999)),
]  # fmt: skip


def cells() -> list[Cell]:
    """Cells of every kind that small studies have, a training cell on one node and one on two among them."""
    expanded = study(
        iterations=3, warmup=1, sgemm={"batches": [1], "samples": 1}, interventions=["synthetic-data"],
        collectives={"largest": 4096, "samples": 2}, storage_reads={"samples": 1},
        matrix=[{"network": "alexnet", "hardware": "cpu", "nodes": [1, 2], "batch": 8, "storage": "disk",
                 "scaling": "strong", "sync": "wfbp"}],
    )  # fmt: skip
    return list(expanded.cells.values())


def write_records(raw: Path) -> None:
    """Write whole records of `cells` below `raw`."""
    for cell in cells():
        rows = {
            one.name: measured(cell, one) for one in kind_of(cell).tables[1:] if one not in (SLURM_JOBS, CONTENTION)
        }
        write_cell(raw / cell.path, {RUNS.name: [run_row(cell, STARTED)], **rows})


def altered(raw: Path, kind: Alteration, draw: Draw) -> Path:
    """Alter one value below `raw`, or all of a column, and return the file."""
    files = [(file, TABLES[file.stem]) for file in sorted(raw.rglob("*.parquet"))]
    places = [(file, table, one) for file, table in files for one in table.columns if kind.fits(table, one)]
    while True:
        file, table, column = draw.choice(places)
        rows = read(table, file)
        values = rows[column.name].to_pylist()
        before = list(values)
        kind.alter(values, draw.randrange(len(values)), draw)
        if values != before or not kind.impossible:
            break
    changed = pa.array(values, column.type)
    write(table, rows.set_column(rows.column_names.index(column.name), column.field, changed), file)
    return file


def run(values: int, seed: int) -> Iterator[Tally]:
    """So many altered values, of all kinds in turn."""
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch, "whole/raw")
        write_records(whole)
        for place, kind in enumerate(ALTERATIONS):
            tally = Tally("altered", "harmless" if not kind.impossible else "impossible")
            for trial in range(place, values, len(ALTERATIONS)):
                _try(tally, kind, whole, Path(scratch, "trial"), Draw(f"{seed} {trial}"))
            yield tally


def _try(tally: Tally, kind: Alteration, whole: Path, folder: Path, draw: Draw) -> None:
    shutil.copytree(whole, folder / "raw")
    file = altered(folder / "raw", kind, draw)
    tally.trials += 1
    try:
        said = collect_all([file.parent], {one.name: folder / f"tables/{one.name}.parquet" for one in TIDY_TABLES})
        if said:
            raise InputError(said)
    except InputError as error:
        tally.refused += 1
        tally.clear += file.stem in str(error) or file.parent.as_posix() in str(error)
        if not kind.impossible:
            tally.red.append(f"{kind.name}: refused: {error}")
    else:
        if kind.impossible:
            tally.half += 1
            tally.red.append(f"{kind.name}: taken: {file}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    as_program(run, __doc__, values=500)
