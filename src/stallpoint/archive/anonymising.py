"""Records and configuration without the names of users and nodes and without absolute paths."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa

from stallpoint.archive.names import Names
from stallpoint.measure.machine.node_addresses import address_family
from stallpoint.records.parquet import read, write
from stallpoint.records.tables import ACCOUNTING, ENVIRONMENTS, PROBES, RUNS, SLURM_JOBS, STORAGE_PASSES, TABLES
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.paths import is_file

_COMMAND = ("run", "launch")
"""How a user's command begins: texts that can name paths."""


def without_names(rows: pa.Table, table: str, names: Names) -> pa.Table:
    """Return rows of the table called `table` with names replaced in texts that can hold them."""
    for column, change in _columns(names).get(table, {}).items():
        column_index = rows.schema.get_field_index(column)
        texts = rows[column].to_pylist()
        changed = {text: change(text) for text in dict.fromkeys(texts) if text}
        values = pa.array([changed.get(text, text) for text in texts], rows.schema.field(column).type)
        rows = rows.set_column(column_index, rows.schema.field(column), values)
    return rows


def _columns(names: Names) -> dict[str, dict[str, Callable[[str], str]]]:
    return {
        RUNS.name: {"reason": names.text, "source": names.text, "settings": lambda text: _settings(text, names)},
        ENVIRONMENTS.name: {
            "node": names.node,
            "mpi_library": names.text,
            "mpi_parameters": names.text,
            "subnet": address_family,
        },
        SLURM_JOBS.name: {"node_list": names.node_list},
        PROBES.name: {"unseen": names.text, "ended": names.text},
        STORAGE_PASSES.name: {"source": lambda text: ""},
        ACCOUNTING.name: {"node_list": names.node_list},
    }


def copy_records(source: Path, target: Path, names: Names | None) -> None:
    """Copy the files of one cell; a file that holds names is rewritten without them."""
    target.mkdir(parents=True)
    for file in sorted(source.glob("*.parquet")):
        if names and file.stem in _columns(names):
            rows = read(TABLES[file.stem], file)
            changed = without_names(rows, file.stem, names)
            if not changed.equals(rows):
                write(TABLES[file.stem], changed, target / file.name)
                continue
        shutil.copyfile(file, target / file.name)


def cell_without_names(cell: Cell, names: Names) -> Cell:
    """Return the cell with its paths replaced."""
    return cell_from_json(_settings(cell.to_json(), names))


def _settings(text: str, names: Names) -> str:
    """Return a cell as JSON with its paths replaced; the study's names of its entries are the author's choice and
    stay."""
    cell = json.loads(text)
    if "storage_path" in cell:
        cell["storage_path"] = names.path(cell["storage_path"])
    if "stage_to" in cell:
        cell["stage_to"] = names.path(cell["stage_to"])
    if "files" in cell:
        cell["files"] = [names.path(file) for file in cell["files"]]
    cell |= {key: names.text(cell[key]) for key in _COMMAND if key in cell}
    if cell.get("own_network"):
        cell["own_network"]["build"] = _build(cell["own_network"]["build"], names)
    return json.dumps(cell, separators=(",", ":"))


def _build(source: str, names: Names) -> str:
    """Return ``FILE.py:FUNCTION`` with the path of the file replaced; a module stays as it is."""
    file, colon, function = source.rpartition(":")
    return f"{names.path(file)}{colon}{function}" if file.endswith(".py") else source


def config_without_names(config: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Return a study's configuration with every path replaced, as in cells and records."""
    changed: dict[str, Any] = deepcopy(dict(config))
    for entry in changed["storage"].values():
        entry |= {key: names.path(entry[key]) for key in ("path", "stage_to") if key in entry}
    for entry in changed["hardware"].values():
        for trace in entry.get("traces", []):
            files = trace["files"] if isinstance(trace["files"], list) else [trace["files"]]
            trace["files"] = [names.path(file) for file in files]
        for log in entry.get("collectives", []):
            log["file"] = names.path(log["file"])
    for entry in changed["commands"].values():
        entry |= {key: names.text(entry[key]) for key in _COMMAND if key in entry}
    for entry in changed["networks"].values():
        entry["build"] = _build(entry["build"], names)
    changed["external_tables"] = {name: names.path(file) for name, file in changed["external_tables"].items()}
    changed["claims"] = [names.path(entry) if is_file(entry) else entry for entry in changed["claims"]]
    return changed
