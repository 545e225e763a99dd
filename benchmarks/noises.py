"""How made-up measurements scatter: between jobs, between visits, between iterations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms, and how often was measured."""

    name: str
    jobs: float = 0.0
    visits: float = 0.0
    iterations: float = 0.02
    repeats: int = 1
    of_job: int = 4
    """Visits of each job."""
    of_visit: int = 3
    """Iterations of each visit."""
    unequal: bool = False
    """Every cell has its own scatter between visits, from a fifth of `visits` to all of it."""
    spells: float = 0.0
    """Part of the visits that fall into a slow spell, which makes them 15 % longer."""

    def factors(self, random: np.random.Generator) -> np.ndarray:
        """Factors by repeat, visit and iteration, whose logarithms are 0 in the mean (slow spells aside)."""
        shape = (self.repeats, self.of_job, self.of_visit)
        visits = self.visits * (np.exp(random.uniform(np.log(0.2), 0)) if self.unequal else 1.0)
        logs = self.jobs * random.standard_normal((shape[0], 1, 1)) + visits * random.standard_normal((*shape[:2], 1))
        logs = logs + self.iterations * random.standard_normal(shape)
        slow = random.random((*shape[:2], 1)) < self.spells
        # In the mean the machine is as fast as its truth: spells are part of it.
        return np.asarray(np.exp(logs) * np.where(slow, 1.15, 1.0) / (1 + 0.15 * self.spells))


NOISES = (
    Noise("quiet: visits 0.5 %", visits=0.005, iterations=0.01),
    Noise("visits 3 %", visits=0.03),
    Noise("visits 10 %", visits=0.1, iterations=0.05),
    Noise("visits 2 to 10 %, each cell its own", visits=0.1, unequal=True),
    Noise("slow spells in a fifth of the visits", visits=0.02, spells=0.2),
    Noise("two visits of 3 %", visits=0.03, of_job=2),
    Noise("one visit of five iterations, jobs 10 %", jobs=0.1, iterations=0.05, of_job=1, of_visit=5),
    Noise("four jobs 10 % apart", jobs=0.1, visits=0.02, repeats=4, of_job=2),
)
