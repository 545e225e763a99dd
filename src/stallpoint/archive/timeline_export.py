"""A run's timeline as JSON trace events, which https://ui.perfetto.dev and chrome://tracing draw.

Format: *Trace Event Format* (Chromium project): complete events (``ph`` X) with start ``ts`` and duration ``dur`` in
microseconds, and metadata events (``ph`` M) that name and order processes and threads. Here a rank is a process, and
its lanes are threads:

- *iterations*: each iteration from its start to the end of its update;
- *data*: the wait for the mini-batch and its copy to the device. The event of the wait also states the
times of reading and decoding, as sums over samples: records do not say when readers worked ahead;
- *compute*: forward and backward pass with their layers inside, the wait for gradients and the model update;
- *communication*: each all-reduce, with its bytes; further lanes where several are under way at once.

Time 0 is the start of the first iteration, which all ranks begin at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stallpoint.archive.exporting import TrainRecords, all_reduces, train_records
from stallpoint.records.atomic import atomic

Event = dict[str, Any]

ITERATIONS, DATA, COMPUTE, COMMUNICATION = range(4)
LANES = ("iterations", "data", "compute", "communication")
"""Lanes of a rank, from the top; further lanes for communication follow."""
_LANES_PER_RANK = 100
"""Thread numbers reserved for each rank. Numbers start at 1, as some viewers take thread 0 for an idle processor."""


def export_timeline(records: Path, target: Path) -> None:
    """Write the timeline of the run in the folder `records` to the JSON file `target`."""
    run = train_records(records)
    drawn_events = sorted(events(run), key=lambda event: (event["ts"], -event["dur"]))
    document = {
        "traceEvents": [*_metadata(run, drawn_events), *drawn_events],
        "displayTimeUnit": "ms",
        "otherData": {"cell": run.cell.path, "settings": run.cell.to_json()},
    }
    with atomic(target) as scratch:
        scratch.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")


def events(run: TrainRecords) -> Iterator[Event]:
    """Yield the complete events of all ranks and iterations, warm-up included."""
    layers = dict(iter(run.layers.sort_values("layer_index").groupby(["rank", "iteration"])))
    for row in run.iterations.to_dict("records"):
        yield from _iteration({str(name): value for name, value in row.items()}, layers[row["rank"], row["iteration"]])
    yield from _all_reduces(run)


@dataclass(frozen=True)
class _IterationOrigin:
    """Rank and start of an iteration. Adding the start makes the iteration's relative times absolute."""

    rank: int
    start: float
    """Start of the iteration, s."""

    def event(self, lane: int, name: str, begin: float, end: float, **facts: Any) -> Event:
        """Return an event; `begin` and `end` are seconds since the start of the iteration."""
        # Start and end are rounded to nanoseconds, so that adjacent events stay adjacent and nested events nested.
        from_, to = round(1e6 * (self.start + begin), 3), round(1e6 * (self.start + end), 3)
        event = {"name": name, "ph": "X", "ts": from_, "dur": round(to - from_, 3), "cat": _category(lane)}
        return event | {"pid": self.rank + 1, "tid": _thread(self.rank, lane), "args": facts}


def _category(lane: int) -> str:
    return LANES[min(lane, COMMUNICATION)]


def _thread(rank: int, lane: int) -> int:
    return rank * _LANES_PER_RANK + lane + 1


def _iteration(row: Mapping[str, Any], layers: pd.DataFrame) -> Iterator[Event]:
    """Yield the events of one rank in one iteration, except its all-reduces."""
    origin = _IterationOrigin(row["rank"], row["start"])
    load_end = row["data_wait"]
    copy_end = load_end + row["host_to_device"]
    forward_end = copy_end + row["forward"]
    backward_end = forward_end + row["backward"]
    gradients_end = backward_end + row["exposed_communication"]
    name = f"iteration {row['iteration']}" + (" (warm-up)" if row["warmup"] else "")
    yield origin.event(ITERATIONS, name, 0.0, row["iteration_time"])
    input_times = {f"{what}_us": round(1e6 * row[what], 3) for what in ("read", "decode")}
    yield origin.event(DATA, "wait for data", 0.0, load_end, **input_times)
    yield origin.event(DATA, "copy to device", load_end, copy_end)
    yield origin.event(COMPUTE, "forward", copy_end, forward_end)
    yield from _layers(origin, layers, "forward", copy_end, forward_end)
    yield origin.event(COMPUTE, "backward", forward_end, backward_end)
    yield from _layers(origin, layers[::-1], "backward", forward_end, backward_end)
    yield origin.event(COMPUTE, "wait for gradients", backward_end, gradients_end)
    yield origin.event(COMPUTE, "update", gradients_end, gradients_end + row["update"])


def _layers(origin: _IterationOrigin, layers: pd.DataFrame, phase: str, begin: float, end: float) -> Iterator[Event]:
    """Yield the events of a pass's layers, one after the other. The last layer ends with the pass, at `end`."""
    ends = end - layers[phase].sum() + layers[phase].cumsum()
    for layer, kind, seconds, ended in zip(layers["layer"], layers["layer_type"], layers[phase], ends, strict=True):
        yield origin.event(COMPUTE, layer, max(begin, ended - seconds), min(max(begin, ended), end), type=kind)


def _all_reduces(run: TrainRecords) -> Iterator[Event]:
    starts = run.iterations.set_index(["rank", "iteration"])["start"]
    lane_ends: dict[int, list[float]] = {}
    for row in all_reduces(run.layers).to_dict("records"):
        start = float(starts[row["rank"], row["iteration"]])
        begin, end = row["all_reduce_start"], row["all_reduce_end"]
        lane = COMMUNICATION + _free_lane(lane_ends.setdefault(row["rank"], []), start + begin, start + end)
        origin = _IterationOrigin(row["rank"], start)
        yield origin.event(lane, f"all-reduce {row['layers']}", begin, end, bytes=row["bucket_bytes"])


def _free_lane(ends: list[float], begin: float, end: float) -> int:
    """Return the first lane that is free at `begin`; `ends` are the ends of the lanes' last events, and are updated."""
    lane = next((lane for lane, last in enumerate(ends) if last <= begin), len(ends))
    ends[lane : lane + 1] = [end]
    return lane


def _metadata(run: TrainRecords, drawn_events: Iterable[Event]) -> Iterator[Event]:
    """Yield the metadata events that name and order ranks and lanes."""
    used_threads = {(event["pid"] - 1, event["tid"]) for event in drawn_events}
    for rank in sorted({rank for rank, _ in used_threads}):
        node = run.nodes.get(rank, "")
        name = f"rank {rank}" + (f" on {node}" if node else "")
        yield _name_event("process_name", rank, ITERATIONS, name=name)
        yield _name_event("process_sort_index", rank, ITERATIONS, sort_index=rank)
        for lane in sorted(thread - 1 - rank * _LANES_PER_RANK for owner, thread in used_threads if owner == rank):
            lane_number = f" {lane - COMMUNICATION + 1}" if lane > COMMUNICATION else ""
            yield _name_event("thread_name", rank, lane, name=_category(lane) + lane_number)
            yield _name_event("thread_sort_index", rank, lane, sort_index=lane)


def _name_event(event_name: str, rank: int, lane: int, **value: str | int) -> Event:
    return {"name": event_name, "ph": "M", "pid": rank + 1, "tid": _thread(rank, lane), "args": value}
