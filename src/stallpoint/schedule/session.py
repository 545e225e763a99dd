"""Leads the visits of one job: starts the processes, orders visits, and goes on where some of them died."""

from __future__ import annotations

import math
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from stallpoint.errors import CannotRun, InputError
from stallpoint.records import disturbances, parquet
from stallpoint.records.tables import ITERATIONS, VISITS
from stallpoint.schedule import visit_durations
from stallpoint.schedule.agenda import Agenda
from stallpoint.schedule.beside import SideBySide
from stallpoint.schedule.ledger import Measurement, Seconds
from stallpoint.schedule.next_visit import Visited, choose, speedups
from stallpoint.schedule.processes import FIRST_STEP, THIS_MACHINE, Order, Processes
from stallpoint.schedule.terminal import CANNOT_RUN, DISTURBED, SO_FAR
from stallpoint.strategies.options import forced
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import kind_of
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.runs import write_failure
from stallpoint.study.workers import placement_in_words
from stallpoint.text import in_words

FIRST_ANSWER = 120.0
"""Time that visits have taken when the log says what is known so far, s; again after twice as long, and so on."""
MOST_ANSWERS = 6
"""Curves of which it does."""


def take_turns(agenda: Agenda, *, launcher: str, log: Path, took: Path | None = None) -> None:
    """Visit the cells of the agenda until it is enough, and write their records.

    Visits that are there already count. A cell that cannot run here gets a record that says so; raises `InputError`
    in the end, when the others are recorded, for cells whose visits ended otherwise. How long visits took is added to
    the file `took`, also when it is interrupted.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    fixed = not agenda.limits.precision
    made: list[pd.DataFrame] = []
    cells = [
        Candidate.found(measurement, made, fixed=fixed, planned=agenda.planned.get(measurement.cell.path))
        for measurement in agenda.measurements()
    ]
    visited = [one.visited for one in cells]
    with (
        _processes([one.measurement.cell for one in cells], launcher, log) as processes,
        _durations_kept(took, visited, processes),
    ):
        company = SideBySide(1 if launcher == THIS_MACHINE else processes.nodes, agenda.seed)
        next_answer = FIRST_ANSWER
        while (choice := choose(visited, agenda.limits, agenda.seed)).place is not None:
            turn = 1 + sum(one.visits for one in visited)
            group = [cells[place] for place in company.group(visited, choice.place)]
            if len(group) > 1 and company.trial:
                _try(company, group, processes, turn)
                if not company.trial:
                    _say(log, company.found)
            elif not _visit(group, company.on_nodes(len(group), turn) if len(group) > 1 else [0], processes, turn):
                company.failed()
                _say(log, company.found)
            for place, one in enumerate(group):
                if one.visited.durations:
                    seconds = in_words(one.visited.durations[-1])
                    _say(log, f"visit {turn + place}: {one.measurement.cell.path} in {seconds}")
                for words in one.worth_acting_on():
                    _say(log, words)
            if sum(one.seconds for one in visited) >= next_answer:
                next_answer *= 2
                for words in so_far(visited):
                    _say(log, words)
    _say(log, f"{_ended(choice.reason)}; {_widths(visited)}")
    for one in cells:
        if not one.problem and (one.measurement.visits or one.measurement.recorded):
            one.measurement.write_record(choice.reason, one.planned)
            one.measurement.finish()
    if problems := [one.problem for one in cells if one.problem]:
        raise InputError("\n".join(problems))


@dataclass
class Candidate:
    """A cell whose visits are wanted."""

    measurement: Measurement
    visited: Visited
    made: list[pd.DataFrame]
    """Rows of the visits made to all cells: by them a slow machine is told from the usual one."""
    planned: Seconds | None
    """What all its visits were expected to take when this job was submitted."""
    problem: str = ""
    """What was wrong, if a visit left nothing behind: then there is no record, and its visits wait for the next job."""
    said: str = ""
    """What is worth acting on in its last visit."""

    @classmethod
    def found(
        cls, measurement: Measurement, made: list[pd.DataFrame], *, fixed: bool, planned: Seconds | None
    ) -> Candidate:
        """With the visits there are from an earlier job; their number may be `fixed`. `planned`: those to come.

        Once they are recorded, what is left of them counts no more: a job was killed while it removed them.
        """
        one = cls(measurement, Visited(measurement.cell, fixed=fixed), made, planned)
        one.visited.ended = measurement.recorded
        for visit in [] if measurement.recorded else measurement.visits:
            one._count(visit)
        if planned:
            low, typical, high = planned
            earlier = sum(one.visited.durations)
            one.planned = (earlier + low, earlier + typical, earlier + high)
        return one

    def worth_acting_on(self) -> Iterator[str]:
        """What is to be said of its last visit, once."""
        if self.said:
            yield self.said
        self.said = ""

    def order(self, turn: int, node: int = 0) -> Order:
        """The order for its next visit."""
        number = 1 + max(self.measurement.visits, default=0)
        return Order(self.measurement.cell, self.measurement.visit_folder(number), number, turn, node)

    def note(self, order: Order, problem: str) -> None:
        """Count a visit that was made, or say what was wrong."""
        self.problem = problem
        if self.problem:
            self.visited.ended = True
            self.visited.durations.append(0.0)
        else:
            self._count(order.visit)

    def _count(self, visit: int) -> None:
        run = self.measurement.run(visit)
        duration = run["duration"]
        self.visited.durations.append(duration)
        if run["status"] != "ok":
            self.visited.ended = True
            self.said = f"{CANNOT_RUN}{self.measurement.cell.path}: {run['reason']}"
            return
        self.made.append(self.measurement.table(VISITS, visit).to_pandas())
        if isinstance(self.measurement.cell, TrainCell):
            beside = int(self.made[-1]["concurrent"].iloc[0])
            self.visited.shared += duration * beside / (1 + beside)
            of_training = kind_of(self.measurement.cell).records[0]
            median = _log_median(self.measurement.table(of_training, visit).to_pandas(), self.made)
            if median is None:
                self.visited.disturbed += 1
                self.said = f"{DISTURBED}{self.measurement.cell.path}"
            else:
                self.visited.medians.append(median)


def _visit(group: Sequence[Candidate], nodes: Sequence[int], processes: Pool, turn: int) -> bool:
    """Visit the cells at the same time, each on its node; whether all of them left something behind."""
    orders = [one.order(turn + place, node) for place, (one, node) in enumerate(zip(group, nodes, strict=True))]
    problems = processes.visit(*orders)
    whole = True
    for one, order, problem in zip(group, orders, problems, strict=True):
        if problem or order.folder.exists():
            one.note(order, problem)
        else:
            whole = False
    return whole


def _try(company: SideBySide, group: Sequence[Candidate], processes: Pool, turn: int) -> None:
    """Visit the cells side by side and, right before or after that, alone on the first node, which counts."""
    numbers = [one.order(turn).visit for one in group]

    def alone() -> None:
        for place, one in enumerate(group):
            _visit([one], [0], processes, turn + place)

    def beside() -> None:
        nodes = company.on_nodes(len(group), turn)
        orders = [
            replace(one.order(turn + place, node), folder=one.measurement.trial_folder, visit=number)
            for place, (one, node, number) in enumerate(zip(group, nodes, numbers, strict=True))
        ]
        for order in orders:
            shutil.rmtree(order.folder, ignore_errors=True)
        begin = time.monotonic()
        processes.visit(*orders)
        group[0].visited.shared -= time.monotonic() - begin

    for step in (alone, beside) if company.alone_first() else (beside, alone):
        step()
    company.add(
        [_log_time(one.measurement.trial_folder) for one in group],
        [_log_time(one.measurement.visit_folder(number)) for one, number in zip(group, numbers, strict=True)],
    )


def _log_time(folder: Path) -> float | None:
    """Logarithm of the median time of all iterations of a visit to a one-node cell; None where it has none."""
    file = folder / f"{ITERATIONS.name}.parquet"
    if not file.exists():
        return None
    return math.log(_times(parquet.read(ITERATIONS, file).to_pandas()).median())


def _times(iterations: pd.DataFrame) -> pd.Series[float]:
    """How long each iteration took, warm-up left out: as long as its slowest rank."""
    return iterations[~iterations["warmup"]].groupby("iteration")["iteration_time"].max()


def _log_median(iterations: pd.DataFrame, visits: Sequence[pd.DataFrame]) -> float | None:
    """Logarithm of the median time of a visit's iterations; None where half of them or more were disturbed."""
    found = disturbances.table(
        iterations[~iterations["warmup"]], disturbances.with_sentinel(pd.concat(visits, ignore_index=True))
    )
    times = _times(iterations)
    good = times[~times.index.isin(found["iteration"])]
    return math.log(good.median()) if 2 * len(good) > len(times) else None


@dataclass
class Pool:
    """Processes for each reduction scheme that has to be told to MPI when it starts; started when they are needed."""

    cells: Sequence[Cell]
    launcher: str
    log: Path
    running: dict[str, Processes] = field(default_factory=dict)
    starts: int = 0
    starting: float = 0.0
    """Time that starting them took, s."""
    cannot_run: dict[str, CannotRun] = field(default_factory=dict)
    """Why MPI does not work here, for each scheme where it does not."""
    died: set[str] = field(default_factory=set)
    """Paths of cells whose processes died once, and nobody said why."""

    @property
    def nodes(self) -> int:
        """Those of the processes for cells whose reduction scheme MPI is not told before it starts."""
        return max((one.nodes for one in self.cells if not forced(one.scheme)), default=1)

    def visit(self, *orders: Order) -> list[str]:
        """Let the processes for these cells (of one scheme) visit them at the same time; see `Processes.visit`."""
        scheme = forced(orders[0].cell.scheme)
        began = datetime.now(UTC)
        try:
            processes = self._started(scheme, orders[0].cell)
        except CannotRun as error:
            if scheme not in self.cannot_run:
                _say(self.log, FIRST_STEP)
            self.cannot_run[scheme] = error
            for order in orders:
                write_failure(order.cell, order.folder, began, str(error))
            return [""] * len(orders)
        problems = processes.visit(*orders)
        if processes.ended:
            del self.running[scheme]
        return self._died(orders[0], began, processes) if processes.died else problems

    def _died(self, order: Order, began: datetime, processes: Processes) -> list[str]:
        """Start over after an end that nobody explains; the second time it is the cell's own, as far as can be told."""
        path, how = order.cell.path, processes.died
        if path in self.died:
            likely = ": most likely out of memory" if processes.killed else ""
            write_failure(order.cell, order.folder, began, f"{how} twice, and nobody says why{likely}")
            return [""]
        self.died.add(path)
        _say(self.log, f"{path}: {how}, and nobody says why: once more")
        return self.visit(order)

    def _started(self, scheme: str, cell: Cell) -> Processes:
        if scheme in self.cannot_run:  # it is the launcher or the MPI library: other cells find the same
            raise self.cannot_run[scheme]
        if scheme not in self.running:
            alike = [one for one in self.cells if forced(one.scheme) == scheme]
            begin = time.monotonic()
            self.running[scheme] = Processes(alike, cell.scheme, launcher=self.launcher, log=self.log)
            self.starts += 1
            self.starting += time.monotonic() - begin
        return self.running[scheme]


@contextmanager
def _processes(cells: Sequence[Cell], launcher: str, log: Path) -> Iterator[Pool]:
    pool = Pool(cells, launcher, log)
    try:
        yield pool
    except BaseException:
        for processes in pool.running.values():
            processes.stop()
        raise
    for processes in pool.running.values():
        processes.end()


@contextmanager
def _durations_kept(file: Path | None, visited: Sequence[Visited], processes: Pool) -> Iterator[None]:
    """Whatever ends the visits, add to `file` how long they took."""
    began, begin = datetime.now(UTC), time.monotonic()
    before = [(one.visits, one.seconds) for one in visited]
    try:
        yield
    finally:
        visits = sum(one.visits for one in visited) - sum(count for count, _ in before)
        if file and visits:
            sitting = visit_durations.Sitting(
                began=began.isoformat(timespec="seconds"),
                nodes=max(one.cell.nodes for one in visited),
                visits=visits,
                visiting=sum(one.seconds for one in visited) - sum(seconds for _, seconds in before),
                wall=time.monotonic() - begin,
                starts=processes.starts,
                starting=processes.starting,
            )
            good = [one for one in visited if not one.ended]
            visit_durations.add(
                file, [visit_durations.Took(one.cell, one.durations, one.medians) for one in good], sitting
            )


def so_far(visited: Sequence[Visited]) -> Iterator[str]:
    """The speedup on the most workers of each curve, where both of its cells have several visits that count."""
    on_most = {id(one.base): one for one in speedups(visited) if math.isfinite(one.half_width)}
    for one in list(on_most.values())[:MOST_ANSWERS]:
        base = placement_in_words(one.base.cell.ranks, one.base.cell.workers_per_node)
        width = f"± {100 * one.half_width:.0f} %"
        yield f"{SO_FAR}{one.other.cell.path}: {one.value:.2f} times as fast as on {base} ({width})"


def _ended(reason: str) -> str:
    return {
        "visits": "every cell has its number of visits",
        "precision": "the precision is reached",
        "budget": "the budget is used up",
        "max visits": "no cell is to be visited more often",
    }[reason]


def _widths(visited: Sequence[Visited]) -> str:
    widths = [one.half_width for one in speedups(visited)]
    if not widths:
        return "no speedup among these cells"
    known = [width for width in widths if math.isfinite(width)]
    if not known:
        return "every speedup rests on a single visit to a cell"
    said = f"speedups to within {100 * statistics.median(known):.1f} % in the median, {100 * max(known):.1f} % at most"
    single = len(widths) - len(known)
    return f"{said}; {single} more {'rests' if single == 1 else 'rest'} on a single visit" if single else said


def _say(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(f"{text}\n")
