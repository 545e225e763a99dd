"""Time of computing, and its spread over workers, when all workers of a job compute, against a job on fewer.

On nodes of their own it takes as long on all of them; virtual nodes, and those that share power or cooling, slow each
other down, and a slow node among many holds up the others. The equal pieces of computing in the records of contention
tell, with nothing sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.base.lagging import lagging
from stallpoint.base.measured import kept
from stallpoint.base.shrinkage import shrink_to_one
from stallpoint.base.statistics import REPLICATES, Ensemble, Reals, bootstrap, generator, groups, scatter, visits_of
from stallpoint.study.workers import Placement, nearest


def expected_lead(values: Reals, workers: int) -> float:
    """Return the expected maximum of `workers` draws from `values`; the j-th of m is it with probability (j^n -
    (j-1)^n) / m^n."""
    if not len(values):
        return 0.0
    places = np.arange(len(values) + 1) / len(values)
    return float(np.sort(values) @ np.diff(places**workers))


USUAL = 0.1
"""Prior scale (log) of the ratio of two placements."""


@dataclass(frozen=True)
class Slowdown:
    """Times of compute bursts, by hardware and placement."""

    known: dict[str, dict[Placement, Ensemble]]
    """Seconds of a piece, in units of that hardware's pieces."""
    leads: dict[str, dict[Placement, Ensemble]]
    """Excess of the slowest rank's piece over the mean of those that do not lag, relative to it."""

    def ratio(self, hardware: str, placement: Placement, reference: Placement) -> Ensemble:
        """Return the time at `placement` over that at `reference`, shrunk to 1 by its uncertainty; of the nearest
        measured ones."""
        known = self.known.get(hardware)
        if not known:
            return np.ones(1 + REPLICATES)
        here, there = (known[nearest(known, at)] for at in (placement, reference))
        return shrink_to_one(here / there, USUAL)

    def further_lead(self, hardware: str, placement: Placement, reference: Placement) -> Ensemble | None:
        """Return how much further the slowest rank lags at `placement` than at `reference`; None unless both were
        measured."""
        leads = self.leads.get(hardware, {})
        return leads[placement] - leads[reference] if {placement, reference} <= set(leads) else None


def fit(contention: pd.DataFrame, seed: int) -> Slowdown:
    """Fit medians over jobs; replicates draw the jobs again, as differences between jobs are not the node count's."""
    known: dict[str, dict[Placement, Ensemble]] = {}
    leads: dict[str, dict[Placement, Ensemble]] = {}
    rows = kept(contention)
    rows = rows.assign(piece=rows["isolated_computing"] / rows["isolated_operations"])
    usual = {hardware: scatter(here, ["nodes", "ranks"], "piece") for hardware, here in groups(rows, "hardware")}
    for (hardware, nodes, ranks), here in groups(rows, ["hardware", "nodes", "ranks"]):
        random, placement = generator(seed, "pace", hardware, nodes, ranks), (nodes, ranks // nodes)
        known.setdefault(hardware, {})[placement] = bootstrap(
            here["piece"], visits_of(here), random, usual=usual[hardware]
        )
        by = ["cell", "repeat", "visit", "operation", "message_bytes", "sample"]
        lags = lagging(here["piece"], here["repeat"], here.groupby(by).ngroup(), here["rank"])
        lead = here.groupby(by)["piece"].max() / here[~lags].groupby(by)["piece"].mean() - 1
        leads.setdefault(hardware, {})[placement] = bootstrap(lead, visits_of(lead.index.to_frame(index=False)), random)
    return Slowdown(known, leads)
