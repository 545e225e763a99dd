"""Traces of NCCL's example profiler plugin: for each thread, events that begin (``b``) and end (``e``).

Format: plugins/profiler/example/print_event.cc of NVIDIA/nccl, one event per line. The channels of the kernel
(``KernelCh``) stand between begin and end of its collective (``COLL``) or message (``P2P``), whose own times are those
of the call on the host.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from stallpoint_traces.formats.communication_traces import Collective, lines_in, traces_of
from stallpoint_traces.formats.events import UNKNOWN, Trace

_SIGNS = re.compile(
    rb'"cat":\s*"(?:GROUP|GROUP_API|COLL|COLL_API|P2P|P2P_API|KERNEL_LAUNCH|PROXY|NET|GPU)",\s*"ph":\s*"[be]"'
)
_POINTER = re.compile(rb":\s*(0x[0-9a-fA-F]+|\(nil\))")
"""A pointer without quotes, which some versions write and JSON does not allow."""
VALUE_BYTES = {
    "int8": 1, "uint8": 1, "float8e4m3": 1, "float8e5m2": 1, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
"""Bytes per value, by NCCL's type name in lower case and without ``nccl``."""


def recognised(head: bytes) -> bool:
    """Return whether a file begins as a trace of the plugin."""
    return _SIGNS.search(head) is not None


@dataclass
class _OpenCollective:
    """A collective while its events are read."""

    name: str
    called: float
    args: dict[str, Any]
    channels: list[float] = field(default_factory=list)
    """Times at which channels of its kernel began or ended, µs."""


def read(path: Path) -> list[Trace]:
    """Return the trace of each rank in a file; `InputError` if nothing was sent."""
    notes: list[str] = []
    of_rank: dict[int, list[Collective]] = defaultdict(list)
    now: _OpenCollective | None = None
    by_host = 0
    for event in lines_in(path, notes, "event", _event):
        category, phase = event.get("cat"), event.get("ph")
        if category in ("COLL", "P2P") and phase == "b":
            now = _OpenCollective(str(event.get("name", "")), float(event["ts"]), event.get("args") or {})
        elif now and category == "GPU" and event.get("name") == "KernelCh":
            now.channels.append(float(event["ts"]))
        elif now and category in ("COLL", "P2P") and phase == "e":
            by_host += not now.channels
            if one := _collective(now, float(event["ts"])):
                of_rank[int(now.args.get("Rank", 0))].append(one)
            now = None
    if by_host:
        notes.append(f"{by_host} collectives have the host's times, as no channel of their kernel was recorded")
    return traces_of(path, of_rank, notes)


def _collective(one: _OpenCollective, ended: float) -> Collective | None:
    kind = str(one.args.get("Datatype", "")).lower().removeprefix("nccl")
    count = one.args.get("Count")
    size = count * VALUE_BYTES[kind] if isinstance(count, int) and kind in VALUE_BYTES else UNKNOWN
    start, end = (min(one.channels), max(one.channels)) if one.channels else (one.called, ended)
    if not start <= end:
        return None
    how = (str(one.args.get(name, "")) for name in ("Algorithm", "Protocol"))
    return Collective(
        one.name, min(one.called, start), start, end, size, str(one.args.get("CommHash", "")), UNKNOWN, *how
    )


def _event(line: bytes) -> dict[str, Any] | None:
    text = line.strip().removeprefix(b"[").strip().removesuffix(b"]").rstrip(b", \t")
    if text in (b"", b"{}"):
        return None
    event: dict[str, Any] = msgspec.json.decode(_POINTER.sub(rb': "\1"', text))
    float(event["ts"])
    return event
