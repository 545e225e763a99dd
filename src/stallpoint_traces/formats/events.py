"""Events of one rank as columns, the result of every reader of traces."""

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
"""Kinds of events: kernels, copies and fills on a device; library calls and operators on the host; marks of the
program."""
UNKNOWN = -1
BYTE = "Byte"
"""`dtype` of data whose size is known only in bytes."""


class EventCommunication(NamedTuple):
    """Communication that an event performs; empty for most events."""

    collective: str = ""
    """Kind of collective, such as ``allreduce``, as NCCL calls it."""
    elements: int = UNKNOWN
    """Number of input values of each rank, of type `dtype`."""
    group_size: int = UNKNOWN
    dtype: str = ""
    group: str = ""
    """Name of the process group."""
    purpose: str = ""
    """Purpose of the process group, in its program's words."""
    members: str = ""
    """Ranks of the process group, as a list in text."""
    in_splits: str = ""
    """Numbers of values that an all-to-all sends to each rank, as a list in text; empty if they are equal."""
    out_splits: str = ""
    """Numbers of values that an all-to-all receives from each rank, likewise."""


NOTHING = EventCommunication()


@dataclass(frozen=True)
class Events:
    """Events as columns [events], sorted by start; unknown integers are `UNKNOWN`."""

    kind: npt.NDArray[np.int8]
    """`KERNEL`, `COPY`, `FILL`, `CALL`, `OPERATOR` or `MARK`."""
    name: npt.NDArray[np.int32]
    """Index in `texts`."""
    start: npt.NDArray[np.float64]
    """Start, s since the first event."""
    seconds: npt.NDArray[np.float64]
    thread: npt.NDArray[np.int32]
    """Number of the host's thread or the device's stream."""
    stream: npt.NDArray[np.int64]
    correlation: npt.NDArray[np.int64]
    """Number shared by a call and the work that it starts on a device."""
    message: npt.NDArray[np.int32]
    """Index in `payloads`, of which the first is empty."""
    texts: tuple[str, ...]
    payloads: tuple[EventCommunication, ...]

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def end(self) -> npt.NDArray[np.float64]:
        """End, s since the first event."""
        return self.start + self.seconds

    def where(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Events:
        """Return the chosen events."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in _TYPES})

    def text(self, column: npt.NDArray[np.int32]) -> list[str]:
        """Return the texts of a column of indices."""
        return [self.texts[index] for index in column]

    @property
    def each_payload(self) -> list[EventCommunication]:
        """Communication of each event."""
        return [self.payloads[index] for index in self.message]

    def called(self, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """Return whether each event's name contains the pattern; [events]."""
        return np.array([pattern.search(text) is not None for text in self.texts], np.bool_)[self.name]


@dataclass(frozen=True)
class Trace:
    """The trace of one rank."""

    path: Path
    rank: int
    world_size: int
    """Number of workers; 1 if unknown."""
    events: Events
    notes: tuple[str, ...]
    """Notes on errors of the file, and on missing data."""
    began: float = math.nan
    """Time of the first event by the host's clock, s since 1970; nan if unknown."""
    computing: bool = True
    """Whether the trace has computing, and not only communication."""
    graph: bool = False
    """Whether the trace is the dependency graph of one iteration, not a profile of several."""


def rank_of(path: Path, notes: list[str], otherwise: int = 0) -> int:
    """Return the rank in the file's name, else `otherwise`; add a note that the file itself does not give it."""
    found = re.search(r"rank[-_.]?(\d+)|\.(\d+)\.et\b", path.name)
    rank = int(found[1] or found[2]) if found else otherwise
    notes.append(f"the file does not say its rank; {'its name says' if found else 'taken is'} {rank}")
    return rank


class Codes(dict[Any, int]):
    """Number of each value, counted from 0 in the order of first use."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


_TYPES: dict[str, Any] = {
    "kind": np.int8, "name": np.int32, "start": np.float64, "seconds": np.float64, "thread": np.int32,
    "stream": np.int64, "correlation": np.int64, "message": np.int32,
}  # fmt: skip
"""Types of the columns of `Events`: narrow, as there may be tens of millions of rows."""
_PIECE = 4096
"""Rows that `Columns.add_row` keeps before they become columns."""


class Columns:
    """Columns of events that are read part by part."""

    def __init__(self) -> None:
        self.texts, self.threads, self.payloads = Codes({"": 0}), Codes(), Codes({NOTHING: 0})
        self._pieces: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _TYPES}
        self._rows: list[tuple[Any, ...]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._rows)

    def add(self, count: int, columns: Mapping[str, Iterable[Any]]) -> None:
        """Add `count` events; names, threads and payloads as numbers of this object's `Codes`; times in any unit."""
        for name, type_ in _TYPES.items():
            self._pieces[name].append(np.fromiter(columns[name], type_, count))
        self._count += count

    def add_row(
        self, kind: int, name: str, start: float, seconds: float, thread: Any, *,
        stream: int = UNKNOWN, correlation: int = UNKNOWN, message: EventCommunication = NOTHING,
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
        """Return all events, and the start of the first one, s; times were added in units of `unit` s."""
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
            # Columns are sorted one by one, so that a trace of 10 million events is not in memory twice.
            for name in merged:
                merged[name] = merged[name][order]
        merged["start"] -= first
        merged["start"] *= unit
        merged["seconds"] *= unit
        return Events(**merged, texts=tuple(self.texts), payloads=tuple(self.payloads)), first * unit
