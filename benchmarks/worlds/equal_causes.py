"""Two causes that take as much of an iteration: neither is dominant."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from judging import shares
from paired import Figure
from planted import NOISES
from truth_causes import CAUSES, planted_curve
from truth_causes import judged as verdicts

from stallpoint.models.answers.causes import LossVerdict

LOST = 0.0435
"""s."""
STUDIES = 4
"""Of each pair."""


def judged() -> Iterator[Figure]:
    """How often one of the two is called dominant, for each noise."""
    for noise in NOISES:
        wrong = [
            LossVerdict.DOMINANT in verdicts(planted_curve({one: LOST, other: LOST}, noise, random, trial)).values()
            for place, (one, other) in enumerate(combinations(CAUSES, 2))
            for trial in range(STUDIES)
            for random in [np.random.default_rng([58, place, trial])]
        ]
        yield from shares(noise.name, {"equal causes wrong": wrong}, {"equal causes wrong": "<= 0.05"}, len(wrong))
