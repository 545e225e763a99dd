"""How long computing takes when all nodes of a job compute, against a job on fewer nodes.

On nodes of their own it takes as long on all of them; virtual nodes, and those that share power or cooling, slow each
other down. The equal pieces of computing in the records of contention tell, with nothing sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.models.measured import kept
from stallpoint.models.statistics import REPLICATES, Ensemble, believed, bootstrap, generator, groups

USUAL = 0.1
"""How far (logarithm) the ratio of two node counts usually is from 1."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a piece of computing by hardware and node count, in the unit of that hardware's pieces."""

    known: dict[str, dict[int, Ensemble]]

    def ratio(self, hardware: str, nodes: int, reference: int) -> Ensemble:
        """Time on `nodes` over that on `reference`, nearer to 1 the less certain; of what was measured nearest."""
        known = self.known.get(hardware)
        if not known:
            return np.ones(1 + REPLICATES)
        here, there = (known[min(known, key=lambda n: abs(np.log(n / count)))] for count in (nodes, reference))
        return believed(here / there, USUAL)


def fit(contention: pd.DataFrame, seed: int) -> Pace:
    """Medians over jobs; replicates draw the jobs again, as what differs between them is not the node count's."""
    known: dict[str, dict[int, Ensemble]] = {}
    for (hardware, nodes), rows in groups(kept(contention), ["hardware", "nodes"]):
        piece = rows["alone_computing"] / rows["alone_operations"]
        random = generator(seed, "pace", hardware, nodes)
        known.setdefault(hardware, {})[nodes] = bootstrap(piece, rows["cell"], random)
    return Pace(known)
