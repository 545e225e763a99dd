"""Timelines that stallpoint exports from a cell's records (`archive.exports.timeline_export`), with all ranks.

A rank computes on its host there, and all-reduces have a lane of their own, as Gloo's threads in a trace of PyTorch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from stallpoint.errors import InputError
from stallpoint.inputs.documents import opened
from stallpoint.inputs.events import BYTE, MARK, NOTHING, OPERATOR, Columns, EventCommunication, Trace

_SIGN = re.compile(rb'^\s*\{"traceEvents":\[\{"name":"process_name","ph":"M".{0,60}?"name":"rank \d+', re.DOTALL)


class _TimelineEvent(msgspec.Struct):
    name: str
    ph: str
    pid: int
    ts: float = 0.0
    dur: float = 0.0
    cat: str = ""
    tid: int = 0
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class _TimelineFile(msgspec.Struct):
    traceEvents: list[_TimelineEvent]


def recognised(head: bytes) -> bool:
    """Return whether a file begins as such a timeline."""
    return _SIGN.search(head) is not None


def read(path: Path) -> list[Trace]:
    """Return the trace of each rank in the file; `InputError` if it is incomplete."""
    try:
        with opened(path) as file:
            found = msgspec.json.decode(file.read(), type=_TimelineFile)
    except (OSError, EOFError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no whole timeline of stallpoint: {error}") from None
    of_rank: dict[int, Columns] = defaultdict(Columns)
    world_size = len({event.pid for event in found.traceEvents})
    for event in found.traceEvents:
        if event.ph == "X":
            _add(of_rank[event.pid - 1], event, world_size)
    if not of_rank:
        raise InputError(f"{path}: no event of a rank")
    return [
        Trace(path, rank, world_size, columns.events(1e-6)[0], (), computing=True)
        for rank, columns in sorted(of_rank.items())
    ]


_MAIN = {"iterations", "data", "compute"}


def _add(columns: Columns, event: _TimelineEvent, world_size: int) -> None:
    """Add an event by PyTorch's name for such an event."""
    kind, name, message = OPERATOR, event.name, NOTHING
    if event.cat == "iterations":
        kind = MARK
    elif event.cat == "data" and event.name == "wait for data":
        kind, name = MARK, "enumerate(DataLoader)#__next__"
    elif event.cat == "communication":
        kind, name = MARK, "mpi:all_reduce"
        message = EventCommunication("allreduce", int(event.args.get("bytes", -1)), world_size, BYTE)
    elif event.name == "backward":
        name = "autograd::engine::evaluate_function: backward"
    elif event.name == "wait for gradients":
        return
    columns.add_row(kind, name, event.ts, event.dur, "main" if event.cat in _MAIN else event.tid, message=message)
