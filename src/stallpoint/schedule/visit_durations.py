"""How long visits took: a small file for each block, so that a plan opens no record of any cell.

``results/<study>/turns/durations/<block>.json`` is rewritten whole when a session ends. It holds, for each cell that
was ever visited, what it asked for when it was visited last and the duration of each of those visits; and for each
session how long it took in all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stallpoint.records.atomic import atomic
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import KINDS

FOLDER = "durations"
_FORMAT = 1


@dataclass(frozen=True)
class Took:
    """The visits to one cell."""

    cell: Cell
    """As it was when it was visited."""
    durations: list[float]
    """s; visits that failed are left out."""
    medians: list[float]
    """Logarithms of the median iteration time of each visit, where it has iterations."""


@dataclass(frozen=True)
class Sitting:
    """One session: all of a job's visits."""

    began: str
    """UTC, ISO 8601."""
    nodes: int
    """Nodes that the job had, whatever each visit used."""
    visits: int
    visiting: float
    """Duration of all visits together, s."""
    wall: float
    """From the first order to the end of the last visit, s; starting processes included."""
    starts: int
    """How often processes were started."""
    starting: float
    """What that took, s."""


@dataclass
class Durations:
    """What is known of one block, or of several."""

    cells: dict[str, Took] = field(default_factory=dict)
    """By path."""
    sittings: list[Sitting] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Durations:
        """What the file says; nothing where there is none, or one of another version.

        Durations only serve to plan: they are never worth an error.
        """
        try:
            values = json.loads(file.read_text())
            if values.pop("format") != _FORMAT:
                return cls()
            cells = [Took(_cell(**one["cell"]), one["durations"], one["medians"]) for one in values["cells"]]
            return cls({one.cell.path: one for one in cells}, [Sitting(**one) for one in values["sittings"]])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    @classmethod
    def read_all(cls, folder: Path) -> Durations:
        """What all files in a folder say."""
        together = cls()
        for file in sorted(folder.glob("*.json")):
            one = cls.read(file)
            together.cells.update(one.cells)
            together.sittings += one.sittings
        return together

    def write(self, file: Path) -> None:
        """Write them whole."""
        cells = [
            {"cell": json.loads(one.cell.to_json()), "durations": one.durations, "medians": one.medians}
            for one in self.cells.values()
        ]
        values = {"format": _FORMAT, "sittings": [asdict(one) for one in self.sittings], "cells": cells}
        with atomic(file) as scratch:
            scratch.write_text(json.dumps(values, separators=(",", ":")))


def _cell(kind: str, **values: Any) -> Cell:
    return KINDS[kind].cell(**values)


def add(file: Path, took: Iterable[Took], sitting: Sitting) -> None:
    """Add a session to the file; what it says of the cells replaces what was said of them before."""
    known = Durations.read(file)
    known.cells.update({one.cell.path: one for one in took if one.durations})
    known.sittings.append(sitting)
    known.write(file)


def file_of(agenda: Path) -> Path:
    """The file that belongs to an agenda's block."""
    return agenda.parent / FOLDER / agenda.name
