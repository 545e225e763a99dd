"""How long computing takes when all workers of a job compute, and how unequal they are, against a job on fewer.

On nodes of their own it takes as long on all of them; virtual nodes, and those that share power or cooling, slow each
other down, and a slow node among many holds up the others. The equal pieces of computing in the records of contention
tell, with nothing sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.models.base.lagging import lagging
from stallpoint.models.base.measured import kept
from stallpoint.models.base.statistics import (
    REPLICATES,
    Ensemble,
    bootstrap,
    generator,
    groups,
    scatter,
    shrink_to_one,
    visits_of,
)
from stallpoint.study.workers import Placement, nearest

USUAL = 0.1
"""How far (logarithm) the ratio of two places usually is from 1."""


@dataclass(frozen=True)
class Pace:
    """What pieces of computing took, by hardware and place."""

    known: dict[str, dict[Placement, Ensemble]]
    """Seconds of a piece, in the unit of that hardware's pieces."""
    leads: dict[str, dict[Placement, Ensemble]]
    """How much longer the slowest rank takes for a piece than the mean of those that do not lag, over that mean."""

    def ratio(self, hardware: str, place: Placement, reference: Placement) -> Ensemble:
        """Time at `place` over that at `reference`, nearer to 1 the less certain; of what was measured nearest."""
        known = self.known.get(hardware)
        if not known:
            return np.ones(1 + REPLICATES)
        here, there = (known[nearest(known, at)] for at in (place, reference))
        return shrink_to_one(here / there, USUAL)

    def further_lead(self, hardware: str, place: Placement, reference: Placement) -> Ensemble | None:
        """How much more the slowest rank lags at `place` than at `reference`; None unless both were measured."""
        leads = self.leads.get(hardware, {})
        return leads[place] - leads[reference] if {place, reference} <= set(leads) else None


def fit(contention: pd.DataFrame, seed: int) -> Pace:
    """Medians over jobs; replicates draw the jobs again, as what differs between them is not the node count's."""
    known: dict[str, dict[Placement, Ensemble]] = {}
    leads: dict[str, dict[Placement, Ensemble]] = {}
    rows = kept(contention)
    rows = rows.assign(piece=rows["isolated_computing"] / rows["isolated_operations"])
    usual = {hardware: scatter(here, ["nodes", "ranks"], "piece") for hardware, here in groups(rows, "hardware")}
    for (hardware, nodes, ranks), here in groups(rows, ["hardware", "nodes", "ranks"]):
        random, place = generator(seed, "pace", hardware, nodes, ranks), (nodes, ranks // nodes)
        known.setdefault(hardware, {})[place] = bootstrap(here["piece"], visits_of(here), random, usual=usual[hardware])
        by = ["repeat", "visit", "operation", "message_bytes", "sample"]
        lags = lagging(here["piece"], here["repeat"], here.groupby(by).ngroup(), here["rank"])
        lead = here.groupby(by)["piece"].max() / here[~lags].groupby(by)["piece"].mean() - 1
        leads.setdefault(hardware, {})[place] = bootstrap(lead, visits_of(lead.index.to_frame(index=False)), random)
    return Pace(known, leads)
