"""What NCCL's Inspector plugin writes for each process: lines of JSON, one for each collective that ended.

Format: plugins/profiler/inspector/README.md of NVIDIA/nccl. Until version 4.2 every line has its communicator
(``header``), from 4.3 on that of the line before it that has one (``dump_stats``). When a collective began and ended
is written with ``NCCL_INSPECTOR_DUMP_VERBOSE=1`` alone.
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
    """Whether a file begins as such a log."""
    return head.lstrip()[:1] == b"{" and _SIGNS.search(head) is not None


def read(path: Path) -> list[Trace]:
    """The trace of each rank in a file; `InputError` where it does not say when collectives began."""
    notes: list[str] = []
    of_rank: dict[int, list[Collective]] = defaultdict(list)
    dropped: dict[tuple[int, str], int] = {}
    untimed = 0
    for header, line in lines_in(path, notes, "record", _line()):
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


def _line() -> Callable[[bytes], tuple[dict[str, Any], dict[str, Any]]]:
    """Make a function that returns the header and content of each line, in their order."""
    header: Any = None

    def read(text: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        nonlocal header
        line = msgspec.json.decode(text)
        header = line.get("header", header)
        int(header["rank"]), header["id"]
        return header, line

    return read


def _collective(what: str, one: dict[str, Any], header: dict[str, Any]) -> Collective | None:
    """The collective or message; None where the line does not say when it was. Kernels run in channels."""
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
