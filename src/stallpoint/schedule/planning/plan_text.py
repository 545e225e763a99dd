"""The plan of a run as a text, and an error if the expected visits exceed the budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from stallpoint.errors import InputError
from stallpoint.schedule.planning.expected import DEFAULTS, Interval
from stallpoint.schedule.planning.plan import BlockJob, Plan, PlannedCell, bases, total
from stallpoint.study.workers import nodes_and_workers, placement_in_words
from stallpoint.text import in_words

MAX_JOBS = 5
"""Largest number of jobs that are listed."""
LINES = 10
"""Maximum number of lines about mini-batches that may not fit into memory."""
_BASIS_WORDS = {
    "cell": "earlier visits to the same cell",
    "nodes": "visits to similar cells on as many nodes and workers",
    "network": "visits to similar cells",
    "kind": "visits to cells of the same kind",
    "hardware": "visits to other cells of the hardware",
    DEFAULTS: "rates of no machine in particular",
}


def text(plan: Plan) -> str:
    """Return the plan as a text of a few lines, even for a large study."""
    if not plan.jobs:
        return "  to measure now: nothing"
    return "\n".join(["  to measure now, expected [90 % interval]:", *_table(plan), *_total_lines(plan)])


def _table(plan: Plan) -> Iterator[str]:
    kind_width = max(len("collectives"), *(len(row.kind) for row in plan.rows)) + 2
    second = max(len("hardware"), *(len(row.hardware) for row in plan.rows)) + 2
    time_width = max(len(duration_in_words(row.seconds)) for row in plan.rows) + 2
    placements = [nodes_and_workers((row.nodes, row.workers_per_node)) for row in plan.rows]
    width = max(map(len, ["nodes", *placements]))
    head = f"  {'kind':<{kind_width}}{'hardware':<{second}}{'nodes':>{width}}{'cells':>8}{'visits':>8}"
    yield f"{head}  {'time':<{time_width}}node-hours"
    for row, placement in zip(plan.rows, placements, strict=True):
        yield (
            f"  {row.kind:<{kind_width}}{row.hardware:<{second}}{placement:>{width}}{row.cells:>8}{row.visits:>8}  "
            f"{duration_in_words(row.seconds):<{time_width}}{_hours(row.node_hours)}"
        )


def _total_lines(plan: Plan) -> Iterator[str]:
    several = len(plan.jobs) > 1
    at_once = " if all run at once" if plan.concurrent and several else ""
    jobs = f"{len(plan.jobs)} job{'s' if several else ''}"
    yield f"  in all: {jobs}, {duration_in_words(plan.seconds)}{at_once}, {_hours(plan.node_hours)} node-hours"
    if plan.concurrent and plan.idle_node_hours.typical:
        yield f"  idle: {_hours(plan.idle_node_hours)} of these node-hours, on nodes that smaller cells do not use"
        saved = _hours(plan.nesting_saves)
        yield f"    nested jobs, one for each number of nodes, would save {saved}, but compare visits of other hours"
    for job in plan.jobs[:MAX_JOBS]:
        request = f", asks for {job.runtime} min" if plan.concurrent else ""
        yield f"    job {job.name}: {count('node', job.nodes)}, {duration_in_words(job.seconds)}{request}"
    if len(plan.jobs) > MAX_JOBS:
        yield f"    and {len(plan.jobs) - MAX_JOBS} more jobs"
    if plan.asks:
        yield "    " + ", ".join(f"{name}: {value}" for name, value in plan.asks.items())
    yield f"  expected from {bases_in_words(plan.basis)}"
    yield from (f"  {line}" for line in warnings(plan))


def warnings(plan: Plan) -> Iterator[str]:
    """Yield warnings: first visits exceed the budget, threads outnumber cores, mini-batches may exceed memory."""
    for job in plan.jobs[:MAX_JOBS]:
        if job.first_visits.high > job.budget_left:
            yield (
                f"budget: job {job.name} has {in_words(job.budget_left)}, but each cell's first visit comes first: "
                f"{duration_in_words(job.first_visits)} in all"
            )
    for name, threads in plan.threads_of_crowded_jobs.items():
        yield (
            f"cores: job {name} computes with {threads} threads at once and may use {count('core', plan.cores or 0)} "
            "(affinity mask, cgroup, --cores): its workers share them, and more workers gain nothing"
        )
    yield from (f"memory: {line}" for line in plan.memory[:LINES])
    if len(plan.memory) > LINES:
        yield f"memory: and {len(plan.memory) - LINES} more"


def bases_in_words(basis: Mapping[str, int]) -> str:
    """Return words that say on which bases durations are expected, and for how many cells (`Plan.basis`)."""
    return "; ".join(f"{_BASIS_WORDS[name]} ({count('cell', number)})" for name, number in basis.items())


def count(noun: str, number: int) -> str:
    """Return a number with its noun: ``1 cell``, ``2 cells``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration_in_words(seconds: Interval) -> str:
    """Return words for a duration and its interval: ``3 min [2 min, 5 min]``."""
    low, typical, high = (in_words(round(value, 3)) for value in seconds.values())
    return f"{typical} [{low}, {high}]"


def _hours(hours: Interval) -> str:
    low, typical, high = (f"{value:.2g}" if value < 100 else f"{value:,.0f}" for value in hours.values())
    return f"{typical} [{low}, {high}]"


# --- check of the budget --------------------------------------------------------------------------

NAMED_GROUPS = 5
"""Number of groups of cells that the error names, the most expensive groups first."""


def check_budget(plan: Plan) -> None:
    """Raise `InputError` if the visits that each cell is to get exceed the budget of their job (`agenda.Limits`).

    The lower end of the expected duration decides: without earlier records, the typical duration may be wrong by a
    factor of 2.5. A job that has begun continues in any case, and ends at its budget.
    """
    problems = [_budget_problem(job) for job in plan.jobs if not _fits(job)]
    if problems:
        raise InputError("\n".join(problems))


def _fits(job: BlockJob) -> bool:
    if job.budget == math.inf or any(order.done for order in job.orders):
        return True
    return _own_visits(job).low <= job.budget


def _own_visits(job: BlockJob) -> Interval:
    """Return the expected duration of all remaining visits, without visits for a wanted precision, s."""
    return total(order.expected.visit.times(order.visits) for order in job.orders)


def _cost(job: BlockJob, visits: int) -> float:
    """Return the expected duration of the job if each cell gets at most `visits` visits, s."""
    return sum(order.expected.visit.typical * min(visits, order.visits) for order in job.orders)


def _budget_problem(job: BlockJob) -> str:
    own_visits = _own_visits(job)
    fitting = next((number for number in range(job.max_visits - 1, 0, -1) if _cost(job, number) <= job.budget), 0)
    groups: dict[str, list[PlannedCell]] = {}
    for order in job.orders:
        groups.setdefault(_group_name(order), []).append(order)
    costs = {name: sum(one.expected.visit.typical * one.visits for one in group) for name, group in groups.items()}
    costly = sorted(costs, key=lambda name: -costs[name])[:NAMED_GROUPS]
    return "\n".join(
        [
            f"budget: hardware {job.name} has {in_words(job.budget)} ({_budget_in_words(job)}), but "
            f"{count('visit', job.max_visits)} to each of {count('cell', len(job.orders))} are expected to take "
            f"{duration_in_words(own_visits)}",
            "what takes most:",
            *(f"  {name}: {in_words(round(costs[name], 3))} ({count('cell', len(groups[name]))})" for name in costly),
            f"visits: {fitting} would fit"
            if fitting
            else "not even one visit to each cell fits: some would have to go",
            f"expected from {bases_in_words(bases(job.orders))}",
        ]
    )


def _group_name(order: PlannedCell) -> str:
    cell = order.cell
    words = [cell.kind, *([cell.network] if hasattr(cell, "network") else [])]
    return f"{' '.join(words)} on {placement_in_words(cell.ranks, cell.workers_per_node)}"


def _budget_in_words(job: BlockJob) -> str:
    values = {"minutes": job.limits.minutes, "node_hours": job.limits.node_hours}
    words = ", ".join(f"{name}: {value:g}" for name, value in values.items() if value is not None)
    return f"{words}, on {count('node', job.nodes)}"
