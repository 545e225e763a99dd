"""The session of one job: it starts processes, orders visits, and restarts processes that died.

*Side by side* means that several one-node cells are visited at once, each on its own node.

Nodes of a job may share what a cell needs: a file system, power and cooling, or the machine itself. A trial therefore
tests whether cells disturb each other. It visits the same cells, one for each node, both side by side and isolated, in
random order, and repeats this `TRIALS` times. A repetition gives one ratio of times: the mean over its cells. If the
90 % interval of the mean ratio (Student's t, of logarithms) lies within ± 3 %, further cells are visited side by side,
else one after the other. This is a test of equivalence: at most one of twenty trials overlooks a disturbance of 3 % or
more. Visits on a quiet machine differ by 3 %, which is well below the precision that studies ask for (10 %). Only the
isolated visits of a trial are recorded. The number of repetitions is fixed, since a test after each repetition would
pass more often by chance.

A trial is made only if side-by-side visits could save at least twice its cost.
"""

from __future__ import annotations

import math
import random
import shutil
import socket
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
from stallpoint.records.atomic import remove_scratch_folders
from stallpoint.records.tables import ITERATIONS, VISITS
from stallpoint.schedule.agenda import Agenda
from stallpoint.schedule.ledger import Measurement, Seconds
from stallpoint.schedule.next_visit import MIN_VISITS, VisitedCell, choose, due_cells, half_width, is_training, speedups
from stallpoint.schedule.planning import visit_durations
from stallpoint.schedule.processes import CHECK_ADVICE, LOCAL_LAUNCHER, Processes, VisitRequest
from stallpoint.schedule.terminal import AGAIN, CANNOT_RUN, DISTURBED, LOST, PRELIMINARY_PREFIX
from stallpoint.strategies.options import forced_scheme
from stallpoint.study.cells import Cell
from stallpoint.study.job_kind import write_failure
from stallpoint.study.kinds import kind_of
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.workers import placement_in_words
from stallpoint.text import in_words

FIRST_ANSWER = 120.0
"""Total duration of visits after which the log first reports speedups, s; each next report is after twice the time."""
MAX_ANSWERS = 6
"""Maximum number of curves in a report of speedups."""


def measure_cells(agenda: Agenda, *, launcher: str, log: Path, durations_file: Path | None = None) -> None:
    """Visit the cells of the agenda until its limits are reached, and write their records.

    Visits of earlier jobs count. A cell that cannot run here gets a record with the reason. If a visit failed for any
    other reason, `InputError` is raised after all other cells are recorded. The durations of visits are added to
    `durations_file`, even after an interruption.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    fixed = not agenda.limits.precision
    visit_rows: list[pd.DataFrame] = []
    cells = [
        WantedCell.found(measurement, visit_rows, fixed=fixed, planned=agenda.planned.get(measurement.cell.path))
        for measurement in agenda.measurements()
    ]
    visited = [one.visited for one in cells]
    with (
        _processes([one.measurement.cell for one in cells], launcher, log) as processes,
        _keep_durations(durations_file, visited, processes),
    ):
        side_by_side_trial = SideBySide(1 if launcher == LOCAL_LAUNCHER else processes.nodes, agenda.seed)
        next_answer_seconds = FIRST_ANSWER
        while (choice := choose(visited, agenda.limits, agenda.seed)).index is not None:
            position = 1 + sum(one.visits for one in visited)
            group = [cells[index] for index in side_by_side_trial.group(visited, choice.index)]
            if len(group) > 1 and side_by_side_trial.trial:
                _repeat_trial(side_by_side_trial, group, processes, position)
                if not side_by_side_trial.trial:
                    _say(log, side_by_side_trial.found)
            elif not _visit(
                group, side_by_side_trial.on_nodes(len(group), position) if len(group) > 1 else [0], processes, position
            ):
                side_by_side_trial.failed()
                _say(log, side_by_side_trial.found)
            for number, one in enumerate(group, position):
                if one.visited.durations and not one.problem:
                    seconds = in_words(one.visited.durations[-1])
                    _say(log, f"visit {number}: {one.measurement.cell.path} in {seconds}")
                for words in one.new_warnings():
                    _say(log, words)
            if sum(one.seconds for one in visited) >= next_answer_seconds:
                next_answer_seconds *= 2
                for words in speedups_so_far(visited):
                    _say(log, words)
    _say(log, f"{_ended(choice.reason)}; {_half_widths_in_words(visited)}")
    for one in cells:
        if not one.problem and (one.measurement.visits or one.measurement.is_recorded):
            one.measurement.write_record(choice.reason, one.planned)
            one.measurement.finish()
    if problems := [one.problem for one in cells if one.problem]:
        raise InputError("\n".join(problems))


@dataclass
class WantedCell:
    """A cell that this job is to visit, and its visits so far."""

    measurement: Measurement
    visited: VisitedCell
    made: list[pd.DataFrame]
    """Rows of `tables.VISITS` of all cells so far, which show slow states of the machine."""
    planned: Seconds | None
    """Duration of all visits to the cell, as expected when this job was submitted."""
    problem: str = ""
    """Why a visit left no tables; if not empty, no record is written, and the next job visits the cell again."""
    message: str = ""
    """Warning about the cell's last visit, for the log; empty if there is none."""

    @classmethod
    def found(
        cls, measurement: Measurement, visit_rows: list[pd.DataFrame], *, fixed: bool, planned: Seconds | None
    ) -> WantedCell:
        """Return the cell with the visits of earlier jobs; `planned` is the expected duration of further visits.

        Visits next to a record are ignored: the job that wrote the record was killed before it could remove them.
        """
        remove_scratch_folders(measurement.folder)
        cell = cls(measurement, VisitedCell(measurement.cell, fixed=fixed), visit_rows, planned)
        cell.visited.ended = measurement.is_recorded
        for visit in [] if measurement.is_recorded else measurement.visits:
            cell._count(visit)
        if planned:
            low, typical, high = planned
            earlier_seconds = sum(cell.visited.durations)
            cell.planned = (earlier_seconds + low, earlier_seconds + typical, earlier_seconds + high)
        return cell

    def new_warnings(self) -> Iterator[str]:
        """Yield the warning about the last visit, unless it was yielded before."""
        if self.message:
            yield self.message
        self.message = ""

    def order(self, position: int, node: int = 0) -> VisitRequest:
        number = 1 + max(self.measurement.visits, default=0)
        return VisitRequest(self.measurement.cell, self.measurement.visit_folder(number), number, position, node)

    def note(self, order: VisitRequest, problem: str) -> None:
        """Count the visit that carried out `order`; after a problem, keep the problem, and end visits to this cell."""
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
            self.message = f"{CANNOT_RUN}{self.measurement.cell.path}: {run['reason']}"
            return
        self.made.append(self.measurement.table(VISITS, visit).to_pandas())
        if isinstance(self.measurement.cell, TrainCell):
            concurrent_visits = int(self.made[-1]["concurrent"].iloc[0])
            self.visited.shared += duration * concurrent_visits / (1 + concurrent_visits)
            training_table = kind_of(self.measurement.cell).records[0]
            log_median = _log_median(self.measurement.table(training_table, visit).to_pandas(), self.made)
            if log_median is None:
                self.visited.disturbed += 1
                self.message = (
                    f"{DISTURBED}{self.measurement.cell.path}: {AGAIN if self.visited.repeats_disturbed else LOST}"
                )
            else:
                self.visited.medians.append(log_median)


def _visit(group: Sequence[WantedCell], nodes: Sequence[int], processes: Pool, position: int) -> bool:
    """Visit the cells of a group at once, each on its node; return False if a visit left neither tables nor problem."""
    orders = [one.order(number, node) for number, (one, node) in enumerate(zip(group, nodes, strict=True), position)]
    problems = processes.visit(*orders)
    complete = True
    for one, order, problem in zip(group, orders, problems, strict=True):
        if problem or order.folder.exists():
            one.note(order, problem)
        else:
            complete = False
    return complete


def _repeat_trial(side_by_side: SideBySide, group: Sequence[WantedCell], processes: Pool, position: int) -> None:
    """Visit the cells both side by side and isolated on the first node, in random order; record the isolated visits."""
    numbers = [one.order(position).visit for one in group]

    def isolated() -> None:
        for offset, one in enumerate(group):
            _visit([one], [0], processes, position + offset)

    def concurrent() -> None:
        nodes = side_by_side.on_nodes(len(group), position)
        orders = [
            replace(one.order(position + offset, node), folder=one.measurement.trial_folder, visit=number)
            for offset, (one, node, number) in enumerate(zip(group, nodes, numbers, strict=True))
        ]
        for order in orders:
            shutil.rmtree(order.folder, ignore_errors=True)
        begin = time.monotonic()
        processes.visit(*orders)
        group[0].visited.shared -= time.monotonic() - begin

    for step in (isolated, concurrent) if side_by_side.isolated_first() else (concurrent, isolated):
        step()
    side_by_side.add(
        [_log_time(one.measurement.trial_folder) for one in group],
        [_log_time(one.measurement.visit_folder(number)) for one, number in zip(group, numbers, strict=True)],
    )


def _log_time(folder: Path) -> float | None:
    """Return the logarithm of the median iteration time of the visit in `folder`; None if it has no iterations."""
    file = folder / f"{ITERATIONS.name}.parquet"
    if not file.exists():
        return None
    return math.log(_times(parquet.read(ITERATIONS, file).to_pandas()).median())


def _times(iterations: pd.DataFrame) -> pd.Series[float]:
    """Return the duration of each iteration on its slowest rank, s; warm-up is left out."""
    return iterations[~iterations["warmup"]].groupby("iteration")["iteration_time"].max()


def _log_median(iterations: pd.DataFrame, visits: Sequence[pd.DataFrame]) -> float | None:
    """Return the logarithm of the median time of undisturbed iterations; None if half or more were disturbed."""
    disturbed = disturbances.table(
        iterations[~iterations["warmup"]], disturbances.with_sentinel(pd.concat(visits, ignore_index=True))
    )
    times = _times(iterations)
    undisturbed_times = times[~times.index.isin(disturbed["iteration"])]
    return math.log(undisturbed_times.median()) if 2 * len(undisturbed_times) > len(times) else None


@dataclass
class Pool:
    """Processes for each reduction scheme, started when needed; a scheme can be set only when MPI starts."""

    cells: Sequence[Cell]
    launcher: str
    log: Path
    running: dict[str, Processes] = field(default_factory=dict)
    starts: int = 0
    starting: float = 0.0
    """Total time of the starts, s."""
    cannot_run: dict[str, CannotRun] = field(default_factory=dict)
    """Reason why MPI does not work here, by scheme."""
    died: set[str] = field(default_factory=set)
    """Paths of cells whose processes died once for an unknown reason."""

    @property
    def nodes(self) -> int:
        """Number of nodes of the processes for cells without a forced reduction scheme: the most of any such cell."""
        return max((one.nodes for one in self.cells if not forced_scheme(one.scheme)), default=1)

    def visit(self, *orders: VisitRequest) -> list[str]:
        """Carry out `orders` for cells of one scheme at the same time; return their problems (`Processes.visit`)."""
        scheme = forced_scheme(orders[0].cell.scheme)
        began = datetime.now(UTC)
        try:
            processes = self._running_processes(scheme, orders[0].cell)
        except CannotRun as error:
            if scheme not in self.cannot_run:
                _say(self.log, CHECK_ADVICE)
            self.cannot_run[scheme] = error
            for order in orders:
                write_failure(order.cell, order.folder, began, str(error))
            return [""] * len(orders)
        problems = processes.visit(*orders)
        if processes.ended:
            del self.running[scheme]
        return self._visit_after_death(orders[0], began, processes) if processes.died else problems

    def _visit_after_death(self, order: VisitRequest, began: datetime, processes: Processes) -> list[str]:
        """Visit a cell again after its processes died for an unknown reason; if they died before, record a failure."""
        path, end = order.cell.path, processes.died
        if path in self.died:
            guess = ": most likely out of memory" if processes.killed else ""
            write_failure(order.cell, order.folder, began, f"{end} twice, reason unknown{guess}")
            return [""]
        self.died.add(path)
        _say(self.log, f"{path}: {end}, reason unknown: visited once more")
        return self.visit(order)

    def _running_processes(self, scheme: str, cell: Cell) -> Processes:
        if scheme in self.cannot_run:  # MPI does not work here: all other cells would fail, too
            raise self.cannot_run[scheme]
        if scheme not in self.running:
            cells = [one for one in self.cells if forced_scheme(one.scheme) == scheme]
            begin = time.monotonic()
            self.running[scheme] = Processes(cells, cell.scheme, launcher=self.launcher, log=self.log)
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
def _keep_durations(file: Path | None, visited: Sequence[VisitedCell], processes: Pool) -> Iterator[None]:
    """Add the durations of visits made in the ``with`` block to `file`, even after an error."""
    began, begin = datetime.now(UTC), time.monotonic()
    earlier_totals = [(one.visits, one.seconds) for one in visited]
    try:
        yield
    finally:
        visits = sum(one.visits for one in visited) - sum(count for count, _ in earlier_totals)
        if file and visits:
            session = visit_durations.Session(
                began=began.isoformat(timespec="seconds"),
                nodes=max(one.cell.nodes for one in visited),
                visits=visits,
                visiting=sum(one.seconds for one in visited) - sum(seconds for _, seconds in earlier_totals),
                wall=time.monotonic() - begin,
                starts=processes.starts,
                starting=processes.starting,
                host=socket.gethostname(),
            )
            valid_cells = [one for one in visited if not one.ended]
            visit_durations.add(
                file, [visit_durations.CellTimes(one.cell, one.durations, one.medians) for one in valid_cells], session
            )


def speedups_so_far(visited: Sequence[VisitedCell]) -> Iterator[str]:
    """Yield words for the speedup on the most workers of each curve, if it follows from several visits to each cell."""
    largest = {id(one.base): one for one in speedups(visited) if math.isfinite(one.half_width)}
    for one in list(largest.values())[:MAX_ANSWERS]:
        base = placement_in_words(one.base.cell.ranks, one.base.cell.workers_per_node)
        width = f"± {100 * one.half_width:.0f} %"
        yield f"{PRELIMINARY_PREFIX}{one.other.cell.path}: {one.value:.2f} times as fast as on {base} ({width})"


def _ended(reason: str) -> str:
    return {
        "visits": "every cell has its number of visits",
        "precision": "the precision is reached",
        "budget": "the budget is used up",
        "max visits": "no cell is to be visited more often",
    }[reason]


def _half_widths_in_words(visited: Sequence[VisitedCell]) -> str:
    widths = [one.half_width for one in speedups(visited)]
    if not widths:
        return "no speedup among these cells"
    known = [width for width in widths if math.isfinite(width)]
    if not known:
        return f"no speedup has {MIN_VISITS} undisturbed visits to each of its cells"
    text = f"speedups to within {100 * statistics.median(known):.1f} % in the median, {100 * max(known):.1f} % at most"
    few = len(widths) - len(known)
    return f"{text}; {few} more without {MIN_VISITS} undisturbed visits to each cell" if few else text


def _say(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(f"{text}\n")


# --- trial of visits side by side -----------------------------------------------------------------

TRIALS = 6
MARGIN = 0.03


@dataclass
class SideBySide:
    """Decision whether a job on `nodes` nodes visits cells side by side, and choice of the cells of a group."""

    nodes: int
    seed: int
    ratios: list[float] = field(default_factory=list)
    """Logarithm of the time side by side over the isolated time, for each repetition of the trial."""
    allowed: bool | None = None
    """Result of the trial; None before its end."""
    found: str = ""
    """Result of the trial in words, with its numbers."""

    @property
    def trial(self) -> bool:
        return self.allowed is None

    def group(self, visited: Sequence[VisitedCell], index: int) -> list[int]:
        """Return the cells to visit at once, as indices in `visited`: the cell `index`, and cells of the same round."""
        if self.allowed is False or self.nodes < 2 or not _fits(visited[index].cell):
            return [index]
        fitting_indices = [other for other in due_cells(visited, self.seed) if _fits(visited[other].cell)]
        if index not in fitting_indices or (self.trial and not self._pays_off(visited)):
            return [index]
        indices = [index, *(other for other in fitting_indices if other != index)][: self.nodes]
        return [index] if self.trial and len(indices) < self.nodes else indices

    def on_nodes(self, count: int, position: int) -> list[int]:
        """Return a node for each of `count` cells in random order: no cell is to be always on the same node."""
        return random.Random(f"{self.seed} nodes {position}").sample(range(self.nodes), count)

    def isolated_first(self) -> bool:
        """Return whether the next repetition of the trial begins with the isolated visits; chance decides."""
        return random.Random(f"{self.seed} alone first {len(self.ratios)}").random() < 1 / 2

    def add(self, concurrent: Sequence[float | None], isolated: Sequence[float | None]) -> None:
        """Add a repetition of the trial: for each cell a log iteration time, or None if a visit has no iterations."""
        pairs = [(one, other) for one, other in zip(concurrent, isolated, strict=True) if other is not None]
        ratios = [one - other for one, other in pairs if one is not None]
        if len(ratios) < len(pairs):
            self.failed()
        elif ratios:
            self.ratios.append(statistics.fmean(ratios))
        if len(self.ratios) == TRIALS and self.trial:
            low, high = self._interval()
            self.allowed = low >= -MARGIN and high <= MARGIN
            self.found = self._trial_result(low, high)

    def failed(self) -> None:
        """Visit no more cells side by side, since a cell failed that does not fail in isolation."""
        self.allowed = False
        self.found = "one-node cells go on one after the other: visits side by side failed"

    def _trial_result(self, low: float, high: float) -> str:
        verdict = "side by side" if self.allowed else "one after the other"
        percent_longer = 100 * math.expm1(statistics.fmean(self.ratios))
        ratio = f"{percent_longer:+.1f} % (90 % interval {100 * low:+.1f} to {100 * high:+.1f} %)"
        others = "1 other" if self.nodes == 2 else f"{self.nodes - 1} others"
        return f"one-node cells go on {verdict}: with {others} a cell takes {ratio}, allowed are ± {100 * MARGIN:.0f} %"

    def _interval(self) -> tuple[float, float]:
        """Return the 90 % interval of the share by which visits take longer side by side (mean ratio - 1)."""
        middle, width = statistics.fmean(self.ratios), half_width(self.ratios)
        return math.expm1(middle - width), math.expm1(middle + width)

    def _pays_off(self, visited: Sequence[VisitedCell]) -> bool:
        """Return whether a trial pays: visits side by side would save at least twice the visits that it adds."""
        remaining_visits = sum(max(0, one.wanted - one.visits) for one in visited if _fits(one.cell) and not one.ended)
        visits_after_trial = remaining_visits - (TRIALS - len(self.ratios)) * self.nodes
        return bool(self.ratios) or visits_after_trial * (1 - 1 / self.nodes) >= 2 * TRIALS


def _fits(cell: Cell) -> bool:
    """Return whether a cell may be visited side by side: it trains on one node without a forced reduction scheme."""
    return is_training(cell) and cell.nodes == 1 and not forced_scheme(cell.scheme)
