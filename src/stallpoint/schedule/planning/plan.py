"""The plan of a run: the cells to measure, and the expected time.

A job keeps as many nodes as its largest cell needs, from its first visit to its last: its node-hours are its wall time
times these nodes, even if most visits use fewer.
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
from stallpoint.schedule import requested
from stallpoint.schedule.agenda import Limits
from stallpoint.schedule.ledger import Measurement
from stallpoint.schedule.next_visit import compared_cells, expected_visits
from stallpoint.schedule.planning import memory_forecast
from stallpoint.schedule.planning.expected import BASES, Expectations, Expected, Interval, around
from stallpoint.schedule.planning.visit_durations import FOLDER, CellTimes, Durations, Session, other_studies
from stallpoint.schedule.terminal import WantedVisits
from stallpoint.strategies.options import forced_scheme
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import KINDS
from stallpoint.study.study import Study
from stallpoint.study.work import ERROR_FACTOR, START_SECONDS, VISIT_GAP

MARGIN = 1.25
"""Ratio of the wall time requested from Slurm to the upper end of the expected wall time."""
MIN_MINUTES = 5
OVERHEAD_FACTOR = 1.5
"""Factor by which the times to start processes, and between visits, may differ from those of earlier runs."""
MAX_READ_CELLS = 100
"""Maximum number of unfinished cells whose visits are read for durations that a killed job did not write."""
FILE = "plan.json"


@dataclass(frozen=True)
class PlannedCell:
    """A cell that the run measures, its remaining visits and their expected duration."""

    cell: Cell
    done: int
    """Number of visits that earlier jobs finished."""
    visits: int
    """Number of remaining visits, without visits for the wanted precision."""
    expected: Expected
    further: tuple[int, int]
    """Typical and high number of additional visits for the wanted precision."""

    @cached_property
    def seconds(self) -> Interval:
        """Expected duration of all remaining visits to the cell, s."""
        visit, (typical, high) = self.expected.visit, self.further
        return Interval(
            visit.low * self.visits, visit.typical * (self.visits + typical), visit.high * (self.visits + high)
        )


@dataclass(frozen=True)
class Row:
    """A row of the plan: all cells with the same kind, hardware entry and placement."""

    kind: str
    hardware: str
    nodes: int
    workers_per_node: int
    cells: int
    visits: int
    seconds: Interval
    node_hours: Interval


@dataclass(frozen=True)
class BlockJob:
    """Job that measures the cells of one block in an interleaved schedule."""

    name: str
    orders: Sequence[PlannedCell]
    limits: Limits
    nodes: int
    start: Interval
    """Time to start the job's processes, s."""
    between: Interval
    """Time between two visits, s."""

    @property
    def max_visits(self) -> int:
        """Largest number of visits that a cell of the job has in its settings."""
        return max(order.cell.visits for order in self.orders)

    @property
    def budget(self) -> float:
        """Maximum total duration of the visits of the job's cells, s; infinite without limits."""
        minutes, hours = self.limits.minutes, self.limits.node_hours
        return min(
            math.inf if minutes is None else 60 * minutes, math.inf if hours is None else 3600 * hours / self.nodes
        )

    @cached_property
    def budget_left(self) -> float:
        """Maximum total duration of the remaining visits, s: the budget minus the visits of earlier jobs."""
        return max(0.0, self.budget - sum(order.done * order.expected.visit.typical for order in self.orders))

    @property
    def limit(self) -> float:
        """Wall time after which the budget ends the job, s; infinite without a budget."""
        return self._between_visits.typical + max(self.budget_left, self.first_visits.typical)

    @cached_property
    def first_visits(self) -> Interval:
        """Total duration of first visits to cells, s; first visits are made even if they exceed the budget."""
        return total(order.expected.visit for order in self.orders if not order.done and order.visits)

    @cached_property
    def _between_visits(self) -> Interval:
        return self.start + self.between.times(sum(order.visits for order in self.orders))

    @cached_property
    def seconds(self) -> Interval:
        """Wall time of the job, s."""
        visits = total(order.seconds for order in self.orders)
        ends = zip(visits.values(), self.first_visits.values(), strict=True)
        return self._between_visits + Interval(*(min(value, max(self.budget_left, first)) for value, first in ends))

    @property
    def node_hours(self) -> Interval:
        """Node-hours of the job: its wall time, h, times its nodes."""
        return self.seconds.times(self.nodes / 3600)

    @property
    def idle_node_hours(self) -> Interval:
        """Node-hours in which nodes of the job are idle, during visits to cells on fewer nodes."""
        visit_times = [(order.seconds.typical, order.cell.nodes) for order in self.orders]
        used_node_seconds = sum(seconds * nodes for seconds, nodes in visit_times)
        held_node_seconds = self.nodes * sum(seconds for seconds, _ in visit_times)
        return self.node_hours.times(1 - used_node_seconds / held_node_seconds if held_node_seconds else 0.0)

    @property
    def nesting_saves(self) -> Interval:
        """Node-hours that one job for each number of nodes would save: idle node-hours minus those for more starts."""
        other_nodes = sum({order.cell.nodes for order in self.orders} - {self.nodes})
        idle, starts = self.idle_node_hours.values(), self.start.times(other_nodes / 3600).values()[::-1]
        return Interval(*(max(0.0, hours - start) for hours, start in zip(idle, starts, strict=True)))

    @property
    def runtime(self) -> int:
        """Wall time, in minutes, to request from a scheduler: the upper end of the expected time, and a margin.

        First visits that may exceed the budget count with their typical duration: a job that runs out of time is
        submitted again with a longer time.
        """
        max_seconds = self._between_visits.high + max(self.budget_left, self.first_visits.typical)
        return max(MIN_MINUTES, math.ceil(MARGIN * min(self.seconds.high, max_seconds) / 60))


@dataclass(frozen=True)
class Plan:
    """The plan of one run of the workflow: its jobs and what they measure."""

    study: str
    jobs: Sequence[BlockJob]
    concurrent: bool = False
    """Whether jobs may run at the same time, as on a cluster."""
    asks: Mapping[str, str] | None = None
    """Further requests to the scheduler that the profile makes (partition, account)."""
    memory: Sequence[str] = ()
    """Lines about mini-batches that may not fit into memory."""
    cores: int | None = None
    """Number of cores that all processes share; None if each job gets the cores that it requests."""

    @property
    def threads_of_crowded_jobs(self) -> dict[str, int]:
        """Number of threads of each job that runs more threads at once than there are cores, by job name."""
        wanted = {
            job.name: max(one.cell.ranks * one.cell.threads_per_worker for one in job.orders) for job in self.jobs
        }
        return {name: threads for name, threads in wanted.items() if self.cores is not None and threads > self.cores}

    @property
    def orders(self) -> Iterator[PlannedCell]:
        return (order for job in self.jobs for order in job.orders)

    @property
    def wanted(self) -> dict[str, WantedVisits]:
        """Expected visits to each cell, by the cell's path; the terminal's progress bar needs them."""
        return {
            order.cell.path: {"visits": order.visits + order.further[0], "seconds": order.expected.visit.typical}
            for order in self.orders
        }

    @cached_property
    def rows(self) -> list[Row]:
        """Rows of the plan, one for each kind, hardware entry, node count and number of workers per node."""
        groups: dict[tuple[str, str, int, int], list[tuple[PlannedCell, int]]] = {}
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
        """Wall time of the run, s: that of all jobs together, or of the longest job if jobs run at the same time."""
        if self.concurrent and self.jobs:
            ends = [job.seconds.values() for job in self.jobs]
            return Interval(*(max(values) for values in zip(*ends, strict=True)))
        return total(job.seconds for job in self.jobs)

    @property
    def limit(self) -> float:
        """Wall time after which budgets have ended all jobs, s; infinite without budgets."""
        limits = [job.limit for job in self.jobs]
        return max(limits, default=0.0) if self.concurrent else sum(limits)

    @cached_property
    def node_hours(self) -> Interval:
        return total(job.node_hours for job in self.jobs)

    @property
    def idle_node_hours(self) -> Interval:
        """Node-hours in which nodes of the jobs are idle, during visits to cells on fewer nodes."""
        return total(job.idle_node_hours for job in self.jobs)

    @property
    def nesting_saves(self) -> Interval:
        """Node-hours that one job for each number of nodes would save (`BlockJob.nesting_saves`)."""
        return total(job.nesting_saves for job in self.jobs)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object, with its rows, jobs and totals."""
        return {
            "study": self.study,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "rows": [
                {
                    **_values(row, "kind", "hardware", "nodes", "workers_per_node", "cells", "visits"),
                    **_expected_times(row),
                }
                for row in self.rows
            ],
            "jobs": [
                {
                    "name": job.name,
                    "nodes": job.nodes,
                    "cells": len(job.orders),
                    "visits": sum(order.visits for order in job.orders),
                    **_expected_times(job),
                    "runtime_minutes": job.runtime,
                }
                for job in self.jobs
            ],
            "total": {
                "jobs": len(self.jobs),
                "concurrent": self.concurrent,
                "cells": sum(len(job.orders) for job in self.jobs),
                "visits": sum(order.visits for order in self.orders),
                **_expected_times(self),
                "idle_node_hours": _hours(self.idle_node_hours),
                "nesting_saves": _hours(self.nesting_saves),
            },
            "asks": dict(self.asks or {}),
            "basis": self.basis,
            "memory": list(self.memory),
            "cores": self.cores,
        }

    @property
    def basis(self) -> dict[str, int]:
        """Number of cells by the basis on which their duration is expected (`Expected.basis`)."""
        return bases(self.orders)

    def append(self, file: Path) -> None:
        """Append the plan to the plans of earlier runs in `file`, if there is a job."""
        if self.jobs:
            with atomic(file) as scratch:
                scratch.write_text(json.dumps([*read(file), self.to_json()], indent=1) + "\n")


def bases(orders: Iterable[PlannedCell]) -> dict[str, int]:
    """Return for each basis the number of cells whose duration is expected on this basis (`Expected.basis`)."""
    counts = Counter(order.expected.basis for order in orders)
    return {basis: counts[basis] for basis in BASES if counts[basis]}


def total(intervals: Iterable[Interval]) -> Interval:
    """Return the interval of a sum: its low end is the sum of all low ends, its high end the sum of all high ends."""
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
    concurrent: bool = False,
    requests: Mapping[str, str] | None = None,
    other_folders: Sequence[Path] = (),
) -> Plan:
    """Return the plan for the measurements in `blocks`; durations of earlier visits are read below `results`.

    `storages` are the study's storage entries, which state numbers of generated samples. `other_folders` have durations
    of other studies, for cells that this study has not visited. Such durations must be from the same hardware entry,
    or, if ranks share `cores` (`expected.seconds`), from this machine. Without blocks no file is read.
    """
    if not blocks:
        return Plan(study, [], concurrent, requests)
    has_begun = (results / "visits").is_dir()
    earlier_durations = Durations.read_all(results / "schedule" / FOLDER)
    cells = [one.cell for block in blocks.values() for one in block]
    machine = {cell.hardware: (cell.device, cell.threads_per_worker) for cell in cells} if cores is not None else {}
    other_durations = Durations.read_all(*other_folders, machines=machine)
    known_times = dict(earlier_durations.cells)
    visits = {
        one.cell.path: len(one.visits) if has_begun and one.folder.is_dir() else 0
        for block in blocks.values()
        for one in block
    }
    _read_unfinished((one for block in blocks.values() for one in block if visits[one.cell.path]), known_times)
    start, between = _overheads(earlier_durations.sessions or other_durations.sessions)
    known_times = {**other_durations.cells, **known_times}
    expectations = Expectations(known_times.values(), results / "networks", cores, samples_of(storages, results))
    jobs = []
    for name, block in blocks.items():
        compared_paths = compared_cells([one.cell for one in block]) if limits.precision else set()
        orders = []
        for one in block:
            expected, done_visits, least = expectations.of(one.cell), visits[one.cell.path], one.cell.visits
            additional_visits = (0, 0)
            if has_begun and one.is_recorded:
                done_visits = least
            elif one.cell.path in compared_paths:
                typical, high = expected_visits(expected.noise, least, limits.precision, shared=cores is not None)
                additional_visits = max(0, typical - max(done_visits, least)), max(0, high - max(done_visits, least))
            orders.append(PlannedCell(one.cell, done_visits, max(0, least - done_visits), expected, additional_visits))
        starts = len({forced_scheme(one.cell.scheme) for one in block})
        jobs.append(BlockJob(name, orders, limits, max(one.cell.nodes for one in block), start.times(starts), between))
    return Plan(study, jobs, concurrent, requests, memory_forecast.expected(cells, results / "models"), cores)


def plan_of(study: Study, results: Path, *, cores: int | None = None, concurrent: bool = False) -> Plan:
    """Return the plan for the cells of a study that have no record in `results`; see `planned` for other arguments."""
    found = requested.measurements(study, results).values()
    return planned(
        study.name,
        requested.blocks(found, requested.RequestedTargets(), str(results), study.nested),
        Limits(study.config["precision"], **study.config["budget"], threshold=study.config["models"]["threshold"]),
        results,
        storages=study.config["storage"],
        cores=cores,
        concurrent=concurrent,
        other_folders=other_studies(results),
    )


def read(file: Path) -> list[dict[str, Any]]:
    """Return the plans of earlier runs from their `file`, as JSON objects in the order of the runs."""
    if not file.exists():
        return []
    try:
        return list(json.loads(file.read_text()))
    except ValueError as error:
        raise InputError(f"{file}: holds no plans ({error}); delete it") from None


def samples_of(storages: Mapping[str, Mapping[str, Any]], results: Path) -> dict[str, int]:
    """Return the number of samples in each storage that has a manifest, or whose samples are generated."""
    found = {}
    for name, entry in storages.items():
        samples = {**storages.get(entry.get("convert_from", ""), {}), **entry}.get("generate")
        with suppress(OSError, ValueError, KeyError):  # the preparation of a storage reports its damaged manifest
            samples = int(json.loads((results / "storage" / f"{name}.json").read_text())["samples"])
        if samples:
            found[name] = samples
    return found


def _overheads(sessions: Sequence[Session]) -> tuple[Interval, Interval]:
    """Return the time to start processes, s, and the time between visits, s, from earlier sessions, else assumed."""
    start_times = [one.starting / one.starts for one in sessions if one.starts]
    between = [(one.wall - one.visiting - one.starting) / one.visits for one in sessions]
    return (
        around(statistics.median(start_times), OVERHEAD_FACTOR) if start_times else around(START_SECONDS, ERROR_FACTOR),
        around(max(0.0, statistics.median(between)), OVERHEAD_FACTOR) if between else around(VISIT_GAP, ERROR_FACTOR),
    )


def _read_unfinished(measurements: Iterable[Measurement], known: dict[str, CellTimes]) -> None:
    """Add to `known` the durations of finished visits whose job was killed before it could write durations."""
    unknown = [one for one in measurements if one.cell.path not in known or known[one.cell.path].cell != one.cell]
    for one in unknown[:: 1 + len(unknown) // MAX_READ_CELLS]:
        runs = [one.run(visit) for visit in one.visits]
        durations = [float(str(run["duration"])) for run in runs if run["status"] == "ok"]
        if durations:
            known[one.cell.path] = CellTimes(one.cell, durations, [])


def _values(row: Row, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _expected_times(one: Row | BlockJob | Plan) -> dict[str, list[float]]:
    seconds = [round(value, 3) for value in one.seconds.values()]
    return {"seconds": seconds, "node_hours": _hours(one.node_hours)}


def _hours(hours: Interval) -> list[float]:
    return [round(value, 6) for value in hours.values()]
