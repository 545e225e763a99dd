"""Refuses a plan that will not fit its budget, before anything is submitted."""

from __future__ import annotations

import math

from stallpoint.errors import InputError
from stallpoint.schedule.expected import Interval
from stallpoint.schedule.plan import BlockJob, Plan, PlannedCell, bases, total
from stallpoint.schedule.plan_text import count, in_time, rests_on
from stallpoint.study.workers import placement_in_words
from stallpoint.text import in_words

NAMED = 5
"""Number of most expensive groups of cells that a refusal names."""


def check_budget(plan: Plan) -> None:
    """Raise `InputError` where each cell's own number of visits does not fit the budget of their job.

    The lower end of the expected interval has to exceed the budget (`agenda.Limits`), as a typical duration without
    earlier records may be wrong by a factor of 2. A job that was begun goes on in any case, and ends at its budget.
    """
    problems = [_problem(job) for job in plan.jobs if not _fits(job)]
    if problems:
        raise InputError("\n".join(problems))


def _fits(job: BlockJob) -> bool:
    if job.budget == math.inf or any(order.done for order in job.orders):
        return True
    return _least(job).low <= job.budget


def _least(job: BlockJob) -> Interval:
    """Return the expected duration of each cell's own number of visits, s."""
    return total(order.expected.visit.times(order.visits) for order in job.orders)


def _cost(job: BlockJob, visits: int) -> float:
    """Return the expected duration of `visits` visits to each cell, s."""
    return sum(order.expected.visit.typical * min(visits, order.visits) for order in job.orders)


def _problem(job: BlockJob) -> str:
    least = _least(job)
    fitting = next((number for number in range(job.max_visits - 1, 0, -1) if _cost(job, number) <= job.budget), 0)
    groups: dict[str, list[PlannedCell]] = {}
    for order in job.orders:
        groups.setdefault(_name(order), []).append(order)
    costs = {name: sum(one.expected.visit.typical * one.visits for one in group) for name, group in groups.items()}
    dearest = sorted(costs, key=lambda name: -costs[name])[:NAMED]
    return "\n".join(
        [
            f"budget: hardware {job.name} has {in_words(job.budget)} ({_given(job)}), but "
            f"{count('visit', job.max_visits)} to each of {count('cell', len(job.orders))} are expected to take "
            f"{in_time(least)}",
            "what takes most:",
            *(f"  {name}: {in_words(round(costs[name], 3))} ({count('cell', len(groups[name]))})" for name in dearest),
            f"visits: {fitting} would fit"
            if fitting
            else "not even one visit to each cell fits: some would have to go",
            f"expected from {rests_on(bases(job.orders))}",
        ]
    )


def _name(order: PlannedCell) -> str:
    cell = order.cell
    what = [cell.kind, *([cell.network] if hasattr(cell, "network") else [])]
    return f"{' '.join(what)} on {placement_in_words(cell.ranks, cell.workers_per_node)}"


def _given(job: BlockJob) -> str:
    values = {"minutes": job.limits.minutes, "node_hours": job.limits.node_hours}
    words = ", ".join(f"{name}: {value:g}" for name, value in values.items() if value is not None)
    return f"{words}, on {count('node', job.nodes)}"
