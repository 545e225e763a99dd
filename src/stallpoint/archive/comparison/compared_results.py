"""Inputs of comparisons: tables from an archive, or from the folder of a study."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pyarrow as pa

from stallpoint.archive.comparison.comparison_files import ARCHIVE_SUFFIX, FOLDERS, files_of, folder_of, name_of
from stallpoint.archive.index import open_archive, read_zip_index
from stallpoint.base.measured import POINT, READING_PARTS, SERIES, TIMES
from stallpoint.errors import InputError
from stallpoint.records.checksums import verified_reader
from stallpoint.records.parquet import open_file, read_rows
from stallpoint.records.tables import DISTURBANCES, ENVIRONMENTS, ITERATIONS, LAYERS, RUNS, STALLING, TIDY_TABLES, Table
from stallpoint.text import sort_key

_ROW = (*POINT, "cell", "repeat", "visit", "iteration", "warmup")
COLUMNS: dict[Table, tuple[str, ...]] = {
    RUNS: ("cell", "kind", "hardware", "started", "settings"),
    ENVIRONMENTS: ("cell", "node"),
    ITERATIONS: (*_ROW, "rank", *TIMES, *READING_PARTS),
    LAYERS: (*_ROW, "rank", "layer", "layer_type", "forward", "backward"),
    STALLING: (*SERIES, "verdict", "verdict_ranks"),
    DISTURBANCES: ("cell", "iteration", "excluded"),
}
"""Tables that are read, and their required columns; archives of earlier versions may lack others."""


@dataclass(frozen=True)
class Results:
    """Measurements and conclusions of a study."""

    name: str
    """Name of the study in the comparison."""
    tables: Mapping[str, pd.DataFrame]
    """Tables of `COLUMNS` by name."""

    @property
    def began(self) -> datetime:
        """Return the time of the first measurement."""
        began: datetime = self.tables[RUNS.name]["started"].min().to_pydatetime()
        return began


def read_results(source: str, where: str) -> Results:
    """Return the results of a study, or of an archive; `source` is the study's folder or name, or the archive's zip.

    Raise `InputError`, which begins with `where`, if results are missing, unfinished, damaged or of another version.
    """
    files = files_of(source, where)
    if not source.endswith(ARCHIVE_SUFFIX):
        return Results(name_of(source), _read_tables(folder_of(source, where), where))
    (archive,) = files
    index = read_zip_index(archive, where)
    with tempfile.TemporaryDirectory() as scratch, open_archive(archive, where) as file:
        read_file = verified_reader(file, f"{where}: {archive}")
        for table, kind in FOLDERS.items():
            target = Path(scratch, kind, f"{table.name}.parquet")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(read_file(f"results/{index.study}/{kind}/{table.name}.parquet"))
        return Results(name_of(source), _read_tables(Path(scratch), f"{where}: {archive}"))


def _read_tables(folder: Path, where: str) -> dict[str, pd.DataFrame]:
    return {table.name: _frame(table, folder / FOLDERS[table] / f"{table.name}.parquet", where) for table in COLUMNS}


def _frame(table: Table, path: Path, where: str) -> pd.DataFrame:
    advice = "archive the study again with this version" if ARCHIVE_SUFFIX in where else "run `snakemake` for the study"
    columns = [*COLUMNS[table], *(MACHINE_COLUMNS if table is ENVIRONMENTS else ())]
    try:
        with open_file(table, path, advice, columns=COLUMNS[table]) as file:
            known_columns = [name for name in columns if name in file.schema_arrow.names]
            rows = read_rows(file, path, known_columns)
        if table in TIDY_TABLES:
            _check_bounds(table, rows)
        frame: pd.DataFrame = rows.to_pandas()
    except InputError as error:
        raise InputError(f"{where}: {str(error).replace(f'{path.parent.parent}/', '')}") from None
    return frame


def _check_bounds(table: Table, rows: pa.Table) -> None:
    """Raise `InputError` for an impossible value. Without polars (of stallpoint[workflow]), nothing is checked."""
    if find_spec("polars") is None:
        return
    from stallpoint.study import bounds

    try:
        bounds.check_columns(table, rows)
    except bounds.ImpossibleValue as error:
        raise InputError(f"{table.name}: {error}; ask who measured it") from None


MACHINE_COLUMNS = (
    "device", "cpu_model", "gpu_model", "cpu_nominal_clock", "cpu_max_clock", "gpu_max_clock", "cores_available",
    "threads", "memory_bytes", "kernel", "python", "torch", "cuda", "cudnn", "nccl", "driver", "blas", "onednn",
    "cudnn_in_force", "onednn_in_force", "precision_in_force", "mpi4py", "mpi_library", "mpi_parameters", "interface",
    "subnet", "stallpoint", "git_commit", "git_dirty",
)  # fmt: skip
"""Columns of `ENVIRONMENTS` that are compared."""
_IGNORED_SETTINGS = ("kind", "hardware", "own_network")
"""Entries of a cell that are not compared: they identify the cell, or are too long."""


def differences(old: Mapping[str, pd.DataFrame], new: Mapping[str, pd.DataFrame]) -> list[dict[str, str]]:
    """Return rows of properties that differ between two studies: ``hardware``, ``what`` (its name), ``old``, ``new``.

    Properties of machines are compared if both studies used the hardware, settings of cells if both have the cell.
    """
    common_cells = set(old[RUNS.name]["cell"]) & set(new[RUNS.name]["cell"])
    first, second = (dict(_properties(tables, common_cells)) for tables in (old, new))
    return [
        {"hardware": hardware, "what": what, "old": _text(first[hardware, what]), "new": _text(values)}
        for (hardware, what), values in second.items()
        if (hardware, what) in first and values != first[hardware, what]
    ]


def _properties(tables: Mapping[str, pd.DataFrame], cells: set[str]) -> Iterator[tuple[tuple[str, str], set[str]]]:
    """Yield each property of each hardware: the pair (hardware, property), and the set of the property's values."""
    runs = tables[RUNS.name]
    machines = tables[ENVIRONMENTS.name].merge(runs[["cell", "hardware"]], on="cell")
    for hardware, rows in machines.groupby("hardware"):
        yield (str(hardware), "nodes used"), {str(rows["node"].nunique())}
        for name in filter(rows.columns.__contains__, MACHINE_COLUMNS):
            yield (str(hardware), name), {str(value) for value in rows[name].dropna()} - {""}
    shared_runs = runs[runs["cell"].isin(cells)]
    for hardware, rows in shared_runs.groupby("hardware"):
        settings = [(kind, json.loads(text)) for kind, text in zip(rows["kind"], rows["settings"], strict=True)]
        names = sorted({(kind, name) for kind, values in settings for name in values if name not in _IGNORED_SETTINGS})
        for kind, name in names:
            values = {json.dumps(one[name]) for of, one in settings if of == kind and name in one}
            yield (str(hardware), f"{kind}: {name}"), values


def _text(values: set[str]) -> str:
    return ", ".join(sorted(values, key=sort_key)) or "none"
