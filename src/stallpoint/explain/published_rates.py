"""Rates beside those that others published for the same model, precision and GPU (``published_rates.yaml``)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from stallpoint.base.section import Cause

NORMAL = 0.9
"""Part of a published rate from which on nothing is to be looked for."""
_UNITS = {"samples/s": "images/s"}


@cache
def _table() -> Mapping[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return found


def _named(patterns: Mapping[str, str], text: str) -> str | None:
    """Return the one name whose pattern is in the text; None if there is none, or several."""
    found = [name for name, pattern in patterns.items() if re.search(pattern, text, re.IGNORECASE)]
    if found == ["float8", "bf16"]:  # float8 is of the products of a model in bfloat16
        found = found[:1]
    return found[0] if len(found) == 1 else None


def compared(setup: str, unit: str, rates: Mapping[int, float], causes: Sequence[Cause]) -> list[str]:
    """Return a sentence about the `rates` of each worker by their count, and what to look at first; empty where nobody
    published a rate of the model, precision and hardware that `setup` names. `causes` are those of the rates."""
    if not setup.strip():
        return []
    names = {what: _named(_table()[what], setup) for what in ("model", "precision", "hardware")}
    entry = next((one for one in _table()["rates"] if all(one[what] == name for what, name in names.items())), None)
    if entry is None or entry["unit"] != _UNITS.get(unit, unit):
        return []
    first, last = min(rates), max(rates)
    parts = {count: rate / _nearest(entry["rates"], count)[1] for count, rate in rates.items()}
    on, published = _nearest(entry["rates"], last)
    words = (
        f"you have {100 * parts[last]:.0f} % of what was published for {entry['model']} in {entry['precision']} on "
        f"{entry['hardware']}: {published:,} {entry['unit']} of each of {on} ({entry['source']})"
    )
    if parts[last] >= NORMAL:
        return [words]
    if parts[first] <= parts[last] / NORMAL:
        fewer = "" if first == last else f", as each of {first} has no more"
        return [
            f"{words}; the first thing to look at is what a worker does by itself: mini-batch, kernels, data{fewer}"
        ]
    cause = causes[0].words if causes else "communication between workers"
    few = f"as {first} have {100 * parts[first]:.0f} %"
    return [f"{words}; the first thing to look at is what comes with more workers, {few}: {cause}"]


def _nearest(published: Mapping[int, float], count: int) -> tuple[int, float]:
    """Return the published count that is nearest to `count`, and its rate."""
    return min(published.items(), key=lambda one: abs(math.log(one[0] / count)))
