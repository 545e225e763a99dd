"""What every reader of traces gives: the events of one rank as columns, whatever the format they were written in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

KERNEL, COPY, FILL, CALL, OPERATOR, MARK = range(6)
"""What runs on a device; calls of its library on the host, operators there, and what its program marked."""
UNKNOWN = -1
BYTE = "Byte"
"""Type of the values of a message of which only the bytes are known."""


class Message(NamedTuple):
    """What an event sends; of most it is nothing."""

    collective: str = ""
    """Kind of collective, such as ``allreduce``, as NCCL calls it."""
    elements: int = UNKNOWN
    """What each rank hands in, in values of `dtype`."""
    group_size: int = UNKNOWN
    dtype: str = ""
    group: str = ""
    """Name of the process group."""
    purpose: str = ""
    """What the process group is for, in its program's words."""


NOTHING = Message()


@dataclass(frozen=True)
class Events:
    """Events as columns, by start; each [events]. Whole numbers are `UNKNOWN` where a trace does not tell them."""

    kind: npt.NDArray[np.int8]
    """`KERNEL`, `COPY`, `FILL`, `CALL`, `OPERATOR` or `MARK`."""
    name: npt.NDArray[np.int32]
    """Place among `texts`."""
    start: npt.NDArray[np.float64]
    """s, since the first event."""
    seconds: npt.NDArray[np.float64]
    thread: npt.NDArray[np.int32]
    """The same for events of one thread of the host, or of one stream of a device."""
    stream: npt.NDArray[np.int64]
    correlation: npt.NDArray[np.int64]
    """The same for a call and what it starts on a device."""
    message: npt.NDArray[np.int32]
    """Place among `payloads`, of which the first is nothing."""
    texts: tuple[str, ...]
    payloads: tuple[Message, ...]

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def end(self) -> npt.NDArray[np.float64]:
        """s, since the first event."""
        return self.start + self.seconds

    def where(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Events:
        """Some of them."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in _TYPES})

    def text(self, column: npt.NDArray[np.int32]) -> list[str]:
        """What a column of places among `texts` says."""
        return [self.texts[index] for index in column]

    @property
    def each_payload(self) -> list[Message]:
        """What each of them sends."""
        return [self.payloads[index] for index in self.message]

    def called(self, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """Which have a name that the pattern is found in."""
        return np.array([pattern.search(text) is not None for text in self.texts], np.bool_)[self.name]


@dataclass(frozen=True)
class Trace:
    """The trace of one rank."""

    path: Path
    rank: int
    world_size: int
    """Workers; 1 where the trace does not tell."""
    events: Events
    notes: tuple[str, ...]
    """What is wrong with the file, or missing in it."""
    began: float = math.nan
    """When its first event was by the clock of its host, s since 1970; not a number where the trace does not tell."""
    computing: bool = True
    """Whether it tells of computing, and not of communication alone."""
    graph: bool = False
    """Whether it is the dependency graph of an iteration, and not what a profiler saw of some of them."""


def rank_of(path: Path, notes: list[str], otherwise: int = 0) -> int:
    """Return the rank that the file's name tells, else another; with a note, as the file itself does not tell."""
    found = re.search(r"rank[-_.]?(\d+)|\.(\d+)\.et\b", path.name)
    rank = int(found[1] or found[2]) if found else otherwise
    notes.append(f"the file does not say its rank; {'its name says' if found else 'taken is'} {rank}")
    return rank


class Codes(dict[Any, int]):
    """A number for each value, from 0 on in the order in which they come."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


_TYPES: dict[str, Any] = {
    "kind": np.int8, "name": np.int32, "start": np.float64, "seconds": np.float64, "thread": np.int32,
    "stream": np.int64, "correlation": np.int64, "message": np.int32,
}  # fmt: skip
"""Columns of `Events`: few, as there may be tens of millions of rows."""
_PIECE = 4096
"""Rows that `Columns.add_row` keeps before they become columns."""


class Columns:
    """The columns of events while they are read, a piece at a time."""

    def __init__(self) -> None:
        self.texts, self.threads, self.payloads = Codes({"": 0}), Codes(), Codes({NOTHING: 0})
        self._pieces: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _TYPES}
        self._rows: list[tuple[Any, ...]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._rows)

    def add(self, count: int, columns: Mapping[str, Iterable[Any]]) -> None:
        """Add so many events; names, threads and messages as places among those of this; times in any unit."""
        for name, type_ in _TYPES.items():
            self._pieces[name].append(np.fromiter(columns[name], type_, count))
        self._count += count

    def add_row(
        self, kind: int, name: str, start: float, seconds: float, thread: Any, *,
        stream: int = UNKNOWN, correlation: int = UNKNOWN, message: Message = NOTHING,
    ) -> None:  # fmt: skip
        """Add one event; times in any unit."""
        self._rows.append((
            kind, self.texts[name], start, seconds, self.threads[thread], stream, correlation, self.payloads[message],
        ))  # fmt: skip
        if len(self._rows) >= _PIECE:
            self._flush()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        self.add(len(rows), {name: map(itemgetter(at), rows) for at, name in enumerate(_TYPES)})

    def events(self, unit: float) -> tuple[Events, float]:
        """Return all that were added, and when the first one began, in s; times were added in units of `unit` s."""
        if self._rows:
            self._flush()
        starts = np.concatenate(self._pieces.pop("start"))
        order = np.argsort(starts, kind="stable")
        in_order = bool((order[:-1] < order[1:]).all())
        first = float(starts[order[0]])
        merged: dict[str, npt.NDArray[Any]] = {"start": starts}
        for name in list(self._pieces):
            merged[name] = np.concatenate(self._pieces.pop(name))
        if not in_order:
            # Column by column: a trace of 10 million events shall not stand in memory twice.
            for name in merged:
                merged[name] = merged[name][order]
        merged["start"] -= first
        merged["start"] *= unit
        merged["seconds"] *= unit
        return Events(**merged, texts=tuple(self.texts), payloads=tuple(self.payloads)), first * unit
