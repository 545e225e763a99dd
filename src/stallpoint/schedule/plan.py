"""What a run will measure, and what that is expected to take: before anything is submitted.

A job has the nodes of its largest cell from its first visit to its last, so that its node-hours are its wall time times
those, whatever single visits use.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.schedule import memory_forecast, visits_for_precision
from stallpoint.schedule.agenda import Limits
from stallpoint.schedule.expected import BASES, Expectations, Expected, Interval, around
from stallpoint.schedule.ledger import Measurement
from stallpoint.schedule.terminal import Wanted
from stallpoint.schedule.visit_durations import FOLDER, Durations, Sitting, Took
from stallpoint.strategies.options import forced
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import KINDS
from stallpoint.study.work import BETWEEN, FACTOR, START

MARGIN = 1.25
"""Wall time asked of Slurm over the upper end of what is expected."""
LEAST_MINUTES = 5
FACTOR_SEEN = 1.5
"""What was seen of starting processes, and of what passes between visits, is right to within this factor."""
MOST_READ = 100
"""Unfinished cells whose visits are read to know how long they took, where a job was killed before it said so."""
FILE = "plan.json"


@dataclass(frozen=True)
class Order:
    """A cell to be measured now."""

    cell: Cell
    done: int
    """Visits that are there from an earlier job."""
    visits: int
    """Visits to make at least."""
    expected: Expected
    further: tuple[int, int]
    """Visits beyond them that the wanted precision is expected to take, and may take."""

    @cached_property
    def seconds(self) -> Interval:
        """What its visits are expected to take, s."""
        least, (typical, high) = self.expected.visit, self.further
        return Interval(
            least.low * self.visits, least.typical * (self.visits + typical), least.high * (self.visits + high)
        )


@dataclass(frozen=True)
class Row:
    """Cells of one kind, hardware and place."""

    kind: str
    hardware: str
    nodes: int
    workers_per_node: int
    cells: int
    visits: int
    seconds: Interval
    node_hours: Interval


@dataclass(frozen=True)
class Job:
    """Cells of one block, which take turns in one job."""

    name: str
    orders: Sequence[Order]
    limits: Limits
    nodes: int
    start: Interval
    """What starting its processes takes, s."""
    between: Interval
    """What passes between two visits, s."""

    @property
    def most_visits(self) -> int:
        """Visits that each cell gets at least, the most of them."""
        return max(order.cell.visits for order in self.orders)

    @property
    def budget(self) -> float:
        """Seconds that its visits may take."""
        minutes, hours = self.limits.minutes, self.limits.node_hours
        return min(
            math.inf if minutes is None else 60 * minutes, math.inf if hours is None else 3600 * hours / self.nodes
        )

    @cached_property
    def seconds(self) -> Interval:
        """Its wall time, s."""
        visits = total(order.seconds for order in self.orders)
        first = sum(order.expected.visit.high for order in self.orders if not order.done and order.visits)
        turns = sum(order.visits for order in self.orders)
        return self.start + visits.at_most(max(self.budget, first)) + self.between.times(turns)

    @property
    def node_hours(self) -> Interval:
        """What it takes of the cluster."""
        return self.seconds.times(self.nodes / 3600)

    @property
    def runtime(self) -> int:
        """Minutes of wall time to ask a scheduler for: the upper end and a margin."""
        return max(LEAST_MINUTES, math.ceil(MARGIN * self.seconds.high / 60))


@dataclass(frozen=True)
class Plan:
    """What one run of the workflow measures."""

    study: str
    jobs: Sequence[Job]
    together: bool = False
    """Jobs may run at the same time, on a cluster; else one after the other."""
    asks: Mapping[str, str] | None = None
    """What is asked of the scheduler beside wall time and nodes (partition, account), as the profile says it."""
    memory: Sequence[str] = ()
    """Mini-batches that may not fit, in words."""
    cores: int | None = None
    """Cores that all processes share; None where each job has as many as it asks for."""

    @property
    def crowded(self) -> dict[str, int]:
        """Jobs whose largest cell computes with more threads at once than there are cores -> how many."""
        wanted = {
            job.name: max(one.cell.ranks * one.cell.threads_per_worker for one in job.orders) for job in self.jobs
        }
        return {name: threads for name, threads in wanted.items() if self.cores is not None and threads > self.cores}

    @property
    def orders(self) -> Iterator[Order]:
        """All cells."""
        return (order for job in self.jobs for order in job.orders)

    @property
    def wanted(self) -> dict[str, Wanted]:
        """The visits of each cell, by its path, for the terminal."""
        return {
            order.cell.path: {"visits": order.visits + order.further[0], "seconds": order.expected.visit.typical}
            for order in self.orders
        }

    @cached_property
    def rows(self) -> list[Row]:
        """By kind, hardware, nodes and workers on each."""
        groups: dict[tuple[str, str, int, int], list[tuple[Order, int]]] = {}
        for job in self.jobs:
            for order in job.orders:
                cell = order.cell
                groups.setdefault((cell.kind, cell.hardware, *cell.placement), []).append((order, job.nodes))
        kinds = list(KINDS)
        return [
            Row(
                *key,
                cells=len(group),
                visits=sum(order.visits for order, _ in group),
                seconds=total(order.seconds for order, _ in group),
                node_hours=total(order.seconds.times(nodes / 3600) for order, nodes in group),
            )
            for key, group in sorted(groups.items(), key=lambda item: (kinds.index(item[0][0]), item[0]))
        ]

    @cached_property
    def seconds(self) -> Interval:
        """Wall time: all jobs', or the longest one's where they run together."""
        if self.together and self.jobs:
            ends = [job.seconds.values() for job in self.jobs]
            return Interval(*(max(end[place] for end in ends) for place in range(3)))
        return total(job.seconds for job in self.jobs)

    @cached_property
    def node_hours(self) -> Interval:
        """Of all jobs."""
        return total(job.node_hours for job in self.jobs)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "study": self.study,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "rows": [
                {
                    **_values(row, "kind", "hardware", "nodes", "workers_per_node", "cells", "visits"),
                    **_took(row),
                }
                for row in self.rows
            ],
            "jobs": [
                {
                    "name": job.name,
                    "nodes": job.nodes,
                    "cells": len(job.orders),
                    "visits": sum(order.visits for order in job.orders),
                    **_took(job),
                    "runtime_minutes": job.runtime,
                }
                for job in self.jobs
            ],
            "total": {
                "jobs": len(self.jobs),
                "together": self.together,
                "cells": sum(len(job.orders) for job in self.jobs),
                "visits": sum(order.visits for order in self.orders),
                **_took(self),
            },
            "asks": dict(self.asks or {}),
            "basis": self.basis,
            "memory": list(self.memory),
            "cores": self.cores,
        }

    @property
    def basis(self) -> dict[str, int]:
        """How many cells' expectations rest on what."""
        return bases(self.orders)

    def append(self, file: Path) -> None:
        """Keep it beside earlier ones."""
        if self.jobs:
            with atomic(file) as scratch:
                scratch.write_text(json.dumps([*read(file), self.to_json()], indent=1) + "\n")


def bases(orders: Iterable[Order]) -> dict[str, int]:
    """How many cells' expectations rest on what."""
    counts = Counter(order.expected.basis for order in orders)
    return {basis: counts[basis] for basis in BASES if counts[basis]}


def total(intervals: Iterable[Interval]) -> Interval:
    """Ends are added, see `Interval`."""
    low = typical = high = 0.0
    for one in intervals:
        low, typical, high = low + one.low, typical + one.typical, high + one.high
    return Interval(low, typical, high)


def planned(
    study: str,
    blocks: Mapping[str, Sequence[Measurement]],
    limits: Limits,
    results: Path,
    *,
    storages: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    cores: int | None = None,
    together: bool = False,
    asks: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for `blocks`, from what was measured below `results` before; `cores` as in `work.seconds`.

    `storages` are the study's entries, which say how many samples are generated. Nothing is read where nothing is to be
    measured.
    """
    if not blocks:
        return Plan(study, [], together, asks)
    begun = (results / "visits").is_dir()
    before = Durations.read_all(results / "turns" / FOLDER)
    known = dict(before.cells)
    visits = {
        one.cell.path: len(one.visits) if begun and one.folder.is_dir() else 0
        for block in blocks.values()
        for one in block
    }
    _read_unfinished((one for block in blocks.values() for one in block if visits[one.cell.path]), known)
    start, between = _beside_visits(before.sittings)
    expectations = Expectations(known.values(), results / "networks", cores, _samples(storages, results))
    jobs = []
    for name, block in blocks.items():
        compared = visits_for_precision.compared([one.cell for one in block]) if limits.precision else set()
        orders = []
        for one in block:
            expected, done, least = expectations.of(one.cell), visits[one.cell.path], one.cell.visits
            further = (0, 0)
            if begun and one.recorded:
                done = least
            elif one.cell.path in compared:
                typical, high = visits_for_precision.visits(
                    expected.noise, least, limits.precision, shared=cores is not None
                )
                further = max(0, typical - max(done, least)), max(0, high - max(done, least))
            orders.append(Order(one.cell, done, max(0, least - done), expected, further))
        starts = len({forced(one.cell.scheme) for one in block})
        jobs.append(Job(name, orders, limits, max(one.cell.nodes for one in block), start.times(starts), between))
    cells = (one.cell for block in blocks.values() for one in block)
    return Plan(study, jobs, together, asks, memory_forecast.expected(cells, results / "models"), cores)


def read(file: Path) -> list[dict[str, Any]]:
    """The plans that were kept, the first one first."""
    if not file.exists():
        return []
    try:
        return list(json.loads(file.read_text()))
    except ValueError as error:
        raise InputError(f"{file}: holds no plans ({error})") from None


def _samples(storages: Mapping[str, Mapping[str, Any]], results: Path) -> dict[str, int]:
    """Samples of each storage that was looked through, by its manifest, or that is going to be generated."""
    found = {}
    for name, entry in storages.items():
        made = {**storages.get(entry.get("convert_from", ""), {}), **entry}.get("generate")
        with suppress(OSError, ValueError, KeyError):  # a manifest that is damaged is never worth an error here
            made = int(json.loads((results / "storage" / f"{name}.json").read_text())["samples"])
        if made:
            found[name] = made
    return found


def _beside_visits(sittings: Sequence[Sitting]) -> tuple[Interval, Interval]:
    """What starting processes takes, and what passes between two visits, s."""
    starts = [one.starting / one.starts for one in sittings if one.starts]
    between = [(one.wall - one.visiting - one.starting) / one.visits for one in sittings]
    return (
        around(statistics.median(starts), FACTOR_SEEN) if starts else around(START, FACTOR),
        around(max(0.0, statistics.median(between)), FACTOR_SEEN) if between else around(BETWEEN, FACTOR),
    )


def _read_unfinished(measurements: Iterable[Measurement], known: dict[str, Took]) -> None:
    """Durations of visits that a job left which was killed before it wrote them down."""
    unknown = [one for one in measurements if one.cell.path not in known or known[one.cell.path].cell != one.cell]
    for one in unknown[:: 1 + len(unknown) // MOST_READ]:
        runs = [one.run(visit) for visit in one.visits]
        durations = [float(str(run["duration"])) for run in runs if run["status"] == "ok"]
        if durations:
            known[one.cell.path] = Took(one.cell, durations, [])


def _values(row: Row, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _took(one: Row | Job | Plan) -> dict[str, list[float]]:
    return {
        "seconds": [round(value, 3) for value in one.seconds.values()],
        "node_hours": [round(value, 6) for value in one.node_hours.values()],
    }
