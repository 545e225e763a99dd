"""Logs of NCCL's Inspector plugin: a file for each process, with a JSON line for each completed collective.

Format: plugins/profiler/inspector/README.md of NVIDIA/nccl. Until version 4.2 every line names its communicator
(``header``); from 4.3 on (``dump_stats``), a line without ``header`` belongs to the last named one. Begin and end times
are written only with ``NCCL_INSPECTOR_DUMP_VERBOSE=1``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stallpoint.errors import InputError
from stallpoint_traces.formats.communication_traces import Collective, lines_in, traces_of
from stallpoint_traces.formats.events import Trace

_SIGNS = re.compile(rb'"(?:inspector_output_format_version|coll_perf|p2p_perf|dump_stats)"')


def recognised(head: bytes) -> bool:
    """Return whether a file begins as a log of the Inspector."""
    return head.lstrip()[:1] == b"{" and _SIGNS.search(head) is not None


def read(path: Path) -> list[Trace]:
    """Return the trace of each rank in a file; `InputError` if collectives have no times."""
    notes: list[str] = []
    of_rank: dict[int, list[Collective]] = defaultdict(list)
    dropped: dict[tuple[int, str], int] = {}
    untimed = 0
    for header, line in lines_in(path, notes, "record", _line_parser()):
        rank, group = int(header["rank"]), str(header["id"])
        if isinstance(stats := line.get("dump_stats"), dict):
            dropped[rank, group] = int(stats.get("coll_dropped_total", 0)) + int(stats.get("p2p_dropped_total", 0))
        for what in ("coll", "p2p"):
            if isinstance(one := line.get(f"{what}_perf"), dict):
                collective = _collective(what, one, header)
                untimed += collective is None
                of_rank[rank] += [collective] if collective else []
    if untimed and not any(of_rank.values()):
        raise InputError(
            f"{path}: it does not say when its {untimed} collectives began; NCCL_INSPECTOR_DUMP_VERBOSE=1 lets the "
            "Inspector write that"
        )
    if untimed:
        notes.append(f"{untimed} collectives without times are excluded")
    if lost := sum(dropped.values()):
        notes.append(f"the Inspector dropped {lost} collectives; NCCL_INSPECTOR_DUMP_COLL_RING_SIZE lets it keep more")
    notes.append("messages of fewer than NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES (8192 unless set) are not recorded")
    return traces_of(path, of_rank, notes)


def _line_parser() -> Callable[[bytes], tuple[dict[str, Any], dict[str, Any]]]:
    """Return a parser that returns header and content of a line; it must get the lines in order."""
    header: Any = None

    def read(text: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        nonlocal header
        line = msgspec.json.decode(text)
        header = line.get("header", header)
        int(header["rank"]), header["id"]
        return header, line

    return read


def _collective(what: str, one: dict[str, Any], header: dict[str, Any]) -> Collective | None:
    """Return a line's collective or point-to-point message; None if it has no times."""
    try:
        times = one["event_trace_ts"]
        channels = times["kernel_events"]
        start = min(float(channel["kernel_start_ts"]) for channel in channels)
        end = max(float(channel["kernel_stop_ts"]) for channel in channels)
        called, size = float(times[f"{what}_start_ts"]), int(one[f"{what}_msg_size_bytes"])
        ranks = int(header["n_ranks"])
    except (ValueError, KeyError, TypeError):
        return None
    if end < start or start <= 0:
        return None
    how = str(one.get("coll_algo", "")), str(one.get("coll_proto", ""))
    return Collective(str(one[what]), min(called, start), start, end, size, str(header["id"]), ranks, *how)
