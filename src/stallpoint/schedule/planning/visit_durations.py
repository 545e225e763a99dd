"""Durations of visits in a small file for each block, so that a plan does not need the records.

``results/<study>/schedule/durations/<block>.json`` is rewritten when a session ends. It holds each visited cell with
its latest settings and the durations of its visits. For each session it holds the total durations.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stallpoint.records.atomic import atomic
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import KINDS

FOLDER = "durations"
_FORMAT = 1


@dataclass(frozen=True)
class CellTimes:
    """Durations of the visits to one cell."""

    cell: Cell
    """The cell, with the settings with which it was visited."""
    durations: list[float]
    """Duration of each visit that did not fail, s."""
    medians: list[float]
    """Logarithm of the median iteration time of each visit that has iterations."""


@dataclass(frozen=True)
class Session:
    """Durations of one session: of all visits that one job made."""

    began: str
    """Time of the first order, UTC, ISO 8601."""
    nodes: int
    """Number of nodes of the job."""
    visits: int
    visiting: float
    """Total duration of the visits, s."""
    wall: float
    """Time from the first order to the end of the last visit, s, with the starts of processes."""
    starts: int
    """Number of times that processes were started."""
    starting: float
    """Total time of the starts, s."""
    host: str = ""
    """Host name of the job's first machine."""


@dataclass
class Durations:
    """Durations of the visits in one block, or in several blocks."""

    cells: dict[str, CellTimes] = field(default_factory=dict)
    """Durations of each cell by its path."""
    sessions: list[Session] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Durations:
        """Return the durations in a file; empty if the file is missing, damaged or of another version.

        A damaged file is no error: only plans need durations.
        """
        try:
            values = json.loads(file.read_text())
            if values.pop("format") != _FORMAT:
                return cls()
            cells = [CellTimes(_cell(**one["cell"]), one["durations"], one["medians"]) for one in values["cells"]]
            return cls({one.cell.path: one for one in cells}, [Session(**one) for one in values["sittings"]])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    @classmethod
    def read_all(cls, *folders: Path, machines: Mapping[str, tuple[str, int]] = MappingProxyType({})) -> Durations:
        """Return the durations in all files of `folders`; later files replace earlier ones.

        `machines` maps each hardware entry that is this machine to a worker's device and threads. With such an entry,
        durations from other machines are left out, and entries with equal device and threads share durations.
        """
        durations, host = cls(), socket.gethostname()
        for file in (file for folder in folders for file in sorted(folder.glob("*.json"))):
            one = cls.read(file)
            file_host = one.sessions[-1].host if one.sessions else ""
            if machines and file_host not in ("", host):
                continue
            renamed_times = (
                replace(times, cell=replace(times.cell, hardware=name))
                for name, equipment in (machines if file_host else {}).items()
                for times in one.cells.values()
                if (times.cell.device, times.cell.threads_per_worker) == equipment
            )
            durations.cells |= {times.cell.path: times for times in renamed_times} | one.cells
            durations.sessions += one.sessions
        return durations

    def write(self, file: Path) -> None:
        cells = [
            {"cell": json.loads(one.cell.to_json()), "durations": one.durations, "medians": one.medians}
            for one in self.cells.values()
        ]
        values = {"format": _FORMAT, "sittings": [asdict(one) for one in self.sessions], "cells": cells}
        with atomic(file) as scratch:
            scratch.write_text(json.dumps(values, separators=(",", ":")))


def _cell(kind: str, **values: Any) -> Cell:
    return KINDS[kind].cell(**values)


def add(file: Path, times: Iterable[CellTimes], session: Session) -> None:
    """Add a session to the file; `times` has its cells' durations, which replace earlier durations of these cells."""
    durations = Durations.read(file)
    durations.cells.update({one.cell.path: one for one in times if one.durations})
    durations.sessions.append(session)
    durations.write(file)


def other_studies(results: Path) -> list[Path]:
    """Return the folders with durations of other studies, whose results lie in the same folder as `results`."""
    return sorted({*results.parent.glob(f"*/schedule/{FOLDER}")} - {results / "schedule" / FOLDER})


def file_of(agenda: Path) -> Path:
    """Return the file for the durations of the block whose agenda is the file `agenda`."""
    return agenda.parent / FOLDER / agenda.name
