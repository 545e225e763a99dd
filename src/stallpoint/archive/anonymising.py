"""Removal of user names, node names and absolute paths from records and configuration.

A name has the same placeholder everywhere in an archive.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from stallpoint.measure.machine.node_addresses import address_family
from stallpoint.records.parquet import read, write
from stallpoint.records.tables import ACCOUNTING, ENVIRONMENTS, PROBES, RUNS, SLURM_JOBS, STORAGE_PASSES, TABLES
from stallpoint.study.cells import Cell
from stallpoint.study.configuration import is_file
from stallpoint.study.kinds import cell_from_json
from stallpoint.text import sort_key

_COMMAND = ("run", "launch")
"""Settings of a user's command that can contain paths."""


def without_names(rows: pa.Table, table: str, names: Names) -> pa.Table:
    """Return the rows of a table (`table` is its name) with placeholders for private names in all texts."""
    for column, change in _columns(names).get(table, {}).items():
        column_index = rows.schema.get_field_index(column)
        texts = rows[column].to_pylist()
        changed_texts = {text: change(text) for text in dict.fromkeys(texts) if text}
        values = pa.array([changed_texts.get(text, text) for text in texts], rows.schema.field(column).type)
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
    """Copy the files of one cell, rewriting those that contain names."""
    target.mkdir(parents=True)
    for file in sorted(source.glob("*.parquet")):
        if names and file.stem in _columns(names):
            rows = read(TABLES[file.stem], file)
            changed_rows = without_names(rows, file.stem, names)
            if not changed_rows.equals(rows):
                write(TABLES[file.stem], changed_rows, target / file.name)
                continue
        shutil.copyfile(file, target / file.name)


def cell_without_names(cell: Cell, names: Names) -> Cell:
    """Return the cell with its paths replaced."""
    return cell_from_json(_settings(cell.to_json(), names))


def _settings(text: str, names: Names) -> str:
    """Return a cell's JSON `text` with its paths replaced. Names of the study's entries stay: the author chose them."""
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
    """Replace the path in ``FILE.py:FUNCTION``; return ``MODULE:FUNCTION``, which has no path, unchanged."""
    file, colon, function = source.rpartition(":")
    return f"{names.path(file)}{colon}{function}" if file.endswith(".py") else source


def config_without_names(config: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Return a study's configuration with every path replaced, as in cells and records."""
    new_config: dict[str, Any] = deepcopy(dict(config))
    for entry in new_config["storage"].values():
        entry |= {key: names.path(entry[key]) for key in ("path", "stage_to") if key in entry}
    for entry in new_config["hardware"].values():
        for trace in entry.get("traces", []):
            files = trace["files"] if isinstance(trace["files"], list) else [trace["files"]]
            trace["files"] = [names.path(file) for file in files]
        for log in entry.get("collectives", []):
            log["file"] = names.path(log["file"])
    for entry in new_config["commands"].values():
        entry |= {key: names.text(entry[key]) for key in _COMMAND if key in entry}
    for entry in new_config["networks"].values():
        entry["build"] = _build(entry["build"], names)
    new_config["external_tables"] = {name: names.path(file) for name, file in new_config["external_tables"].items()}
    new_config["claims"] = [names.path(entry) if is_file(entry) else entry for entry in new_config["claims"]]
    return new_config


# --- placeholders for private names ---------------------------------------------------------------

USER = "user"
_PATH = re.compile(r"(?<![\w.~/:@-])/[^\s'\"`:;,()\[\]{}<>|=]+")
"""An absolute path inside a text; the ``/`` of a URL, relative path or ratio has a character before it: no match."""
_USER_AT_HOST = re.compile(r"[\w.+-]+@[\w.-]+")
"""``user@host``, as in build stamps of MPI libraries."""
_NODE_LIST_PART = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_NODE_RANGES = re.compile(r"([^\[]*)\[([\d,-]+)\](.*)")
"""Slurm's abbreviation of nodes: ``gpu[017-019,021]``."""


class Names:
    """Placeholders for the names of `nodes` and `users`. Absolute paths become relative to `root`.

    Nodes are numbered in natural order, so that tables sorted by node keep their order. Nodes keep their names if every
    name is ``node`` and a number.
    """

    def __init__(self, nodes: Iterable[str] = (), users: Iterable[str] = (), root: str = os.sep) -> None:
        full_names = sorted(sorted(set(nodes) - {""}), key=sort_key)
        is_replaced = all(re.fullmatch(r"node\d+", name) for name in full_names)
        self.nodes = {name: name if is_replaced else f"node{number}" for number, name in enumerate(full_names, start=1)}
        """Placeholder of each node, by its full name."""
        self.users = set(users) - {"", USER}
        self._root = PurePosixPath(root)
        self._folders: dict[str, str] = {}
        short_names = {name.split(".")[0]: placeholder for name, placeholder in self.nodes.items()}
        self._words = {**dict.fromkeys(self.users, USER), **short_names, **self.nodes}
        alternatives = "|".join(map(re.escape, sorted(self._words, key=len, reverse=True)))
        self._word = re.compile(rf"(?<![A-Za-z0-9_])(?:{alternatives or '(?!)'})(?![A-Za-z0-9_])")

    @property
    def words(self) -> frozenset[str]:
        """Return the names of nodes and users that an archive must not contain."""
        return frozenset(word for word, placeholder in self._words.items() if word != placeholder)

    def node(self, name: str) -> str:
        """Return the placeholder of a node."""
        return self.nodes.get(name, self.text(name))

    def node_list(self, text: str) -> str:
        """Return a node list of Slurm with placeholders. Unknown nodes are only counted: ``node1,2 more``."""
        names = list(expand_nodes(text))
        placeholders = sorted(sorted({self._words[name] for name in names if name in self._words}), key=sort_key)
        unknown_names_count = sum(name not in self._words for name in names)
        return ",".join([*placeholders, *([f"{unknown_names_count} more"] if unknown_names_count else [])])

    def path(self, path: str) -> str:
        """Return the path relative to the root. Folders outside the root are numbered: ``path1``, ``path2``, ..."""
        if not path.startswith("/") and ".." not in PurePosixPath(path).parts:
            return self._without_words(path)
        absolute_path = PurePosixPath(os.path.normpath(self._root / path))
        if absolute_path.is_relative_to(self._root) and self._root != PurePosixPath("/"):
            return self._without_words(str(absolute_path.relative_to(self._root)))
        folder = self._folders.setdefault(str(absolute_path.parent), f"path{len(self._folders) + 1}")
        return f"{folder}/{self._without_words(absolute_path.name)}" if absolute_path.name else folder

    def text(self, text: str) -> str:
        """Return a text with all private names replaced."""
        text = _PATH.sub(lambda found: self.path(found[0]), text)
        return self._without_words(_USER_AT_HOST.sub("user@host", text))

    def _without_words(self, text: str) -> str:
        return self._word.sub(lambda found: self._words[found[0]], text)


def expand_nodes(text: str) -> Iterable[str]:
    """Yield the nodes that Slurm abbreviates: ``gpu[08-10],login`` stands for gpu08, gpu09, gpu10 and login."""
    for part in _NODE_LIST_PART.findall(text):
        if found := _NODE_RANGES.fullmatch(part):
            for span in found[2].split(","):
                first, _, last = span.partition("-")
                for number in range(int(first), int(last or first) + 1):
                    yield from expand_nodes(f"{found[1]}{number:0{len(first)}}{found[3]}")
        elif part not in ("(null)", "None assigned"):
            yield part
