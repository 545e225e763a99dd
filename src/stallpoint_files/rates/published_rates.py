"""Comparison of rates with published ones for the same model, precision and GPU (``published_rates.yaml``)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stallpoint.base.section import Cause
from stallpoint_files.setups.catalog import chips
from stallpoint_files.texts.yaml_tables import yaml_table

NORMAL = 0.9
"""Minimum fraction of a published rate for a rate to be normal."""
SPREAD = 0.004
"""Relative deviation of iteration times within a run (median of 33 systems of MLPerf Training 5.1)."""
UNEVEN = 5
"""Minimum ratio of a deviation to `SPREAD` for the deviation to be unusual."""
_FILE = Path(__file__).with_suffix(".yaml")
_UNITS = {"samples/s": "images/s"}


def _unique_name(patterns: Mapping[str, str], text: str) -> str | None:
    """Return the name whose pattern occurs in the text; None for no match or several."""
    found = [name for name, pattern in patterns.items() if re.search(pattern, text, re.IGNORECASE)]
    if found == ["float8", "bf16"]:  # a bfloat16 model may compute products in float8
        found = found[:1]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class PublishedRate:
    """A published rate per worker, with model, precision and hardware in words."""

    words: str
    workers: int
    batch: float | None
    rate: float
    source: str


def every_rate() -> list[PublishedRate]:
    """Return all published rates of the file."""
    found = []
    for one in yaml_table(_FILE)["rates"]:
        words = f"{one['model']}, {one['precision']}, {one['hardware']}"
        found += [PublishedRate(words, count, None, rate, one["source"]) for count, rate in one["rates"].items()]
    for one in yaml_table(_FILE)["runs"]:
        words, source = f"{one['model']}, {one['hardware']}", f"MLPerf Training {one['source']}"
        found.append(PublishedRate(words, one["gpus"], one["batch"], one["rate"], source))
    return found


@dataclass(frozen=True)
class _Rate:
    """A rate per worker as published."""

    workers: int
    rate: float
    batch: float | None
    """Global mini-batch, samples; None if not published."""
    source: str


@dataclass(frozen=True)
class _Published:
    """Published rates of one model on one kind of hardware."""

    subject: str
    unit: str
    rates: Sequence[_Rate]

    @classmethod
    def of(cls, setup: str) -> _Published | None:
        """Return the published rates for the model, precision and hardware that `setup` names; None without any.

        `setup` must name the published precision; otherwise results of MLPerf are taken, which do not give it.
        """
        names = {what: _unique_name(yaml_table(_FILE)[what], setup) for what in ("model", "precision")}
        names["hardware"] = _unique_name(
            {chip.name: rf"(?<![a-z0-9])(?:{chip.pattern})(?![a-z0-9])" for chip in chips()}, setup
        )
        subject = f"{names['model']} in {names['precision']} on {names['hardware']}"
        for one in yaml_table(_FILE)["rates"]:
            if all(one[what] == name for what, name in names.items()):
                rates = [_Rate(count, rate, None, one["source"]) for count, rate in one["rates"].items()]
                return cls(subject, one["unit"], rates)
        runs = [
            one
            for one in yaml_table(_FILE)["runs"]
            if (one["model"], one["hardware"]) == (names["model"], names["hardware"])
        ]
        rates = [_Rate(one["gpus"], one["rate"], one["batch"], f"MLPerf Training {one['source']}") for one in runs]
        unit = runs[0].get("unit", "samples/s") if runs else ""
        return cls(f"{names['model']} on {names['hardware']}", unit, rates) if rates else None

    def comparable(self, count: int) -> bool:
        """Return whether a published rate has half to twice as many workers, or a mini-batch that is not divided."""
        return any(one.batch is None or 0.5 <= one.workers / count <= 2 for one in self.rates)

    def nearest(self, count: int, batch: float | None) -> _Rate:
        """Return the published rate on the nearest count, with the nearest mini-batch there, or else the fastest."""
        near = min(self.rates, key=lambda one: abs(math.log(one.workers / count))).workers
        here = [one for one in self.rates if one.workers == near]
        if batch is None:
            return max(here, key=lambda one: one.rate)
        return min(here, key=lambda one: abs(math.log((one.batch or batch) / near / (batch / count))))


def compared(
    setup: str,
    unit: str,
    rates: Mapping[int, float],
    causes: Sequence[Cause],
    batches: Mapping[int, float | None] = MappingProxyType({}),
    spread: float | None = None,
) -> list[str]:
    """Return a sentence that compares `rates` (per worker, by count) with published ones and says what to look at
    first; empty if no rate is published for `setup`. `causes` are the rates' causes of losses, `batches` the global
    mini-batches, `spread` is the relative deviation of iterations within a run."""
    published = _Published.of(setup) if setup.strip() else None
    if published is None or _UNITS.get(published.unit, published.unit) != _UNITS.get(unit, unit):
        return []
    largest, rates = max(rates), {count: rate for count, rate in rates.items() if published.comparable(count)}
    if not rates:
        return []
    first, last = min(rates), max(rates)
    parts = {count: rate / published.nearest(count, batches.get(count)).rate for count, rate in rates.items()}
    best = published.nearest(last, batches.get(last))
    batch = f", mini-batch {best.batch:,}" if best.batch else ""
    yours = "you" if last == largest else f"your {last:,}"
    words = (
        f"{yours} have {100 * parts[last]:.0f} % of what was published for {published.subject}: {best.rate:,} "
        f"{published.unit} of each of {best.workers}{batch} ({best.source})"
    )
    if parts[last] >= NORMAL:
        return [words]
    if spread is not None and spread > UNEVEN * SPREAD:
        times = f"{spread / SPREAD:.0f} times as large as in public runs"
        return [f"{words}; the spread within the run is {times}: the first thing to look at are uneven ranks"]
    if parts[first] <= parts[last] / NORMAL:
        fewer = "" if first == last else f", as each of {first} has no more"
        return [
            f"{words}; the first thing to look at is what a worker does by itself: mini-batch, kernels, data{fewer}"
        ]
    cause = causes[0].words if causes else "communication between workers"
    few = f"as {first} have {100 * parts[first]:.0f} %"
    return [f"{words}; the first thing to look at is what comes with more workers, {few}: {cause}"]
