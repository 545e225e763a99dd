"""Reports of Nsight Systems, as written by ``nsys export --type sqlite``: each process of a node is a rank.

Tables and columns (*SQLite Export Schema Reference* of Nsight Systems' documentation) depend on what was traced and on
the version: the reader lists the existing ones first. Times are ns. The upper bits of ``globalPid`` and ``globalTid``
are a process, the lower 24 a thread.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError
from stallpoint_traces.formats.events import (
    BYTE,
    CALL,
    COPY,
    FILL,
    KERNEL,
    MARK,
    NOTHING,
    OPERATOR,
    UNKNOWN,
    Columns,
    EventCommunication,
    Trace,
    rank_of,
)

_THREAD_BITS = 24
_DEVICE_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNEL, "CUPTI_ACTIVITY_KIND_MEMCPY": COPY, "CUPTI_ACTIVITY_KIND_MEMSET": FILL,
}  # fmt: skip
_COPY_DIRECTIONS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
"""Direction of a copy by CUPTI's ``copyKind``."""
_VERSION = re.compile(r"_(?:ptsz_|ptds_)?v\d+$")
"""Version suffix of a CUDA call's name."""
_OPERATOR = re.compile(r"^[\w ]+::")
"""Names of PyTorch's operators, which `torch.autograd.profiler.emit_nvtx` marks: ``aten::mm, seq = 3``."""
_SIZE = re.compile(r'Message size \[bytes\]"?\s*[:=]\s*"?(\d+)')
"""Message size in the NVTX text of an NCCL call."""
Sizes: TypeAlias = dict[int, npt.NDArray[np.int64]]
_NCCL = re.compile(r"^ncclDev|^ncclKernel")


def recognised(head: bytes) -> bool:
    """Return whether a file is a database of SQLite."""
    return head.startswith(b"SQLite format 3\x00")


def read(path: Path) -> list[Trace]:
    """Return the trace of each process that used a device or set marks; `InputError` if there is none."""
    try:
        with sqlite3.connect(f"file:{path.resolve()}?mode=ro&immutable=1", uri=True) as database:
            return _Report(path, database).traces()
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: no whole SQLite export of Nsight Systems: {error}") from None


class _Report:
    """A database while it is read."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path, self._database = path, database
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        self._columns = {name: {row[1] for row in database.execute(f'PRAGMA table_info("{name}")')} for name in tables}
        strings = database.execute("SELECT id, value FROM StringIds") if "StringIds" in tables else ()
        self._strings: dict[int, str] = dict(strings)
        self._of_process: dict[int, Columns] = defaultdict(Columns)
        self._devices: dict[int, int] = {}
        self._notes: list[str] = []
        self._bad = 0

    def traces(self) -> list[Trace]:
        if not any(name in self._columns for name in (*_DEVICE_TABLES, "NVTX_EVENTS")):
            raise InputError(
                f"{self._path}: no kernels and no marks of a program; trace with nsys profile --trace cuda,nvtx"
            )
        sizes = self._add_marks()
        calls = self._add_calls(sizes)
        for table, kind in _DEVICE_TABLES.items():
            self._add_device(table, kind, calls, sizes)
        if self._bad:
            self._notes.append(f"{self._bad} events without an end, or of a duration below 0, are excluded")
        used = sorted(self._of_process, key=lambda process: (self._devices.get(process, 1 << 30), process))
        with_device = [process for process in used if process in self._devices] or used
        if not with_device:
            raise InputError(f"{self._path}: no kernel and no mark of a program")
        return [self._trace(process, index) for index, process in enumerate(with_device)]

    def _trace(self, process: int, index: int) -> Trace:
        notes = [*self._notes, "the file does not say how many workers there were"]
        rank = rank_of(self._path, notes, index) if index == 0 else index
        if index:
            notes.append(f"the file does not say its rank; taken is {index}, by its device among those of the report")
        events, began = self._of_process[process].events(1e-9)
        return Trace(self._path, rank, 1, events, tuple(notes), self._epoch() + began)

    def _epoch(self) -> float:
        table = "TARGET_INFO_SESSION_START_TIME"
        if "utcEpochNs" not in self._columns.get(table, ()):
            return float("nan")
        row = self._database.execute(f"SELECT utcEpochNs FROM {table}").fetchone()
        return 1e-9 * row[0] if row and isinstance(row[0], int) else float("nan")

    def _rows(self, table: str, *wanted: str, where: str = "1") -> Iterator[dict[str, Any]]:
        """Yield the rows with valid times, each with the existing ones of the `wanted` columns."""
        there = self._columns.get(table, set())
        names = [name for name in wanted if name in there]
        if not {"start", "end"} <= set(names):
            return
        asked = ", ".join(f'"{name}"' for name in names)
        for row in self._database.execute(f'SELECT {asked} FROM "{table}" WHERE {where} ORDER BY start'):
            found = dict(zip(names, row, strict=True))
            if found["end"] is None or found["end"] < found["start"]:
                self._bad += 1
            else:
                yield found

    def _add_marks(self) -> Sizes:
        """Add the program's NVTX ranges; return begin, end and bytes of NCCL calls [calls, 3], by thread."""
        sizes: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        wanted = ("start", "end", "text", "textId", "globalTid", "jsonText")
        ranges = "eventType IN (59, 60)" if "eventType" in self._columns.get("NVTX_EVENTS", ()) else "1"
        for row in self._rows("NVTX_EVENTS", *wanted, where=ranges):
            text = row.get("text") or self._strings.get(row.get("textId") or UNKNOWN, "")
            thread = row.get("globalTid") or 0
            name = text.partition(", ")[0]
            kind = OPERATOR if _OPERATOR.match(name) else MARK
            columns = self._of_process[thread >> _THREAD_BITS]
            columns.add_row(kind, name, row["start"], row["end"] - row["start"], ("host", thread))
            if found := _SIZE.search(f"{text} {row.get('jsonText') or ''}"):
                sizes[thread].append((row["start"], row["end"], int(found[1])))
        return {thread: np.array(own, np.int64) for thread, own in sizes.items()}

    def _add_calls(self, sizes: Sizes) -> dict[tuple[int, int], tuple[int, int]]:
        """Add CUDA calls; return thread and time of calls in threads that use NCCL, by (process, correlation)."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for row in self._rows("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "globalTid", "correlationId", "nameId"):
            thread, correlation = row.get("globalTid") or 0, row.get("correlationId", UNKNOWN)
            name = _VERSION.sub("", self._strings.get(row.get("nameId") or 0, ""))
            process = thread >> _THREAD_BITS
            self._of_process[process].add_row(
                CALL, name, row["start"], row["end"] - row["start"], ("host", thread), correlation=correlation
            )
            if thread in sizes:
                found[process, correlation] = thread, row["start"]
        return found

    def _add_device(self, table: str, kind: int, calls: dict[tuple[int, int], tuple[int, int]], sizes: Sizes) -> None:
        wanted = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId")
        for row in self._rows(table, *wanted, "demangledName", "shortName", "copyKind"):
            process = (row.get("globalPid") or 0) >> _THREAD_BITS
            name = self._name(row, kind)
            message = NOTHING
            if kind == KERNEL and _NCCL.match(name):
                size = _size_at(calls.get((process, row["correlationId"])), sizes)
                message = EventCommunication(elements=size, dtype=BYTE) if size >= 0 else message
            device, stream = row.get("deviceId", 0), row.get("streamId", 0)
            self._devices.setdefault(process, device)
            self._of_process[process].add_row(
                kind, name, row["start"], row["end"] - row["start"], ("device", device, stream), stream=stream,
                correlation=row.get("correlationId", UNKNOWN), message=message,
            )  # fmt: skip

    def _name(self, row: dict[str, Any], kind: int) -> str:
        if kind == COPY:
            return f"Memcpy {_COPY_DIRECTIONS.get(row.get('copyKind', 0), '')}".rstrip()
        if kind == FILL:
            return "Memset"
        named = (self._strings.get(row.get(column) or 0, "") for column in ("demangledName", "shortName"))
        return next(filter(None, named), "")


def _size_at(call: tuple[int, int] | None, sizes: Sizes) -> int:
    """Return the bytes of the NCCL call that started a kernel; `UNKNOWN` without such a call."""
    if call is None:
        return UNKNOWN
    thread, moment = call
    own = sizes[thread]
    index = int(np.searchsorted(own[:, 0], moment, side="right")) - 1
    return int(own[index, 2]) if index >= 0 and moment <= own[index, 1] else UNKNOWN
