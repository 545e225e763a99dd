"""A machine over time, in words and as data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from stallpoint.archive.comparison.history import MIN_STUDIES, History, PastMachine, Trend
from stallpoint.base.frames import records
from stallpoint.text import interval, number


def summary(found: History) -> list[str]:
    """Return sentences on the history of each hardware: whether iterations get slower, and since when."""
    return [sentence for machine in found.machines for sentence in sentences_of(machine)]


def sentences_of(machine: PastMachine) -> Iterator[str]:
    """Yield sentences on the history of one hardware, such as its change of iteration time with each month."""
    if machine.trend is None:
        yield f"{machine.hardware}: {len(machine.slowdowns)} studies; a trend needs {MIN_STUDIES}, at different times."
        return
    trend = machine.trend
    yield f"{machine.hardware}: {machine.verdict}; iteration time changes by {_percent(trend)} with each month."
    yield (
        f"{machine.hardware}: studies lie {number(100 * machine.between)} % apart beside what their visits say "
        f"(compare with between={machine.between:.2g})."
    )
    if machine.step:
        yield f"{machine.hardware}: from {machine.step_at} on, iteration time is changed by {_percent(machine.step)}."


def _percent(fit: Trend) -> str:
    value, low, high = (100 * float(np.expm1(log)) for log in (fit.value, *fit.interval))
    return interval((value, low, high), unit=" %")


def to_json(found: History) -> str:
    """Return sentences and numbers of a history as JSON."""
    return json.dumps({"summary": summary(found), "machines": list(map(_data, found.machines))}, indent=1) + "\n"


def _data(machine: PastMachine) -> dict[str, Any]:
    return {
        "hardware": machine.hardware,
        "word": machine.verdict,
        "trend": _fit(machine.trend),
        "step": _fit(machine.step),
        "step_at": machine.step_at,
        "paces": [{**row, "began": row["began"].isoformat()} for row in records(machine.slowdowns)],
    }


def _fit(fit: Trend | None) -> dict[str, Any] | None:
    """Return a fit as data, in units of log time (a trend: per month)."""
    if fit is None:
        return None
    low, high = fit.interval
    return {"value": fit.value, "low": low, "high": high, "p": fit.p, "between": fit.between}
