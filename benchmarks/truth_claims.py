"""Claims whose verdicts were planted: how often a decisive one is wrong, over `COUNT` combinations.

A combination that is true lies just at the limit of the condition, where noise decides most often; one that is false
lies `FAR` beyond it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from judging import shares
from noises import NOISES, Noise
from paired import Figure

from stallpoint.findings.claims.claim_files import own_claims
from stallpoint.findings.claims.judge import judge
from stallpoint.findings.claims.verdict import FAILS, HOLDS
from stallpoint.models.base.statistics import bootstrap, columns, generator

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from claim_tables import evidence

TRIALS, COUNT = 40, 10
LIMIT, FAR = 1.0, 0.8
"""Times the limit."""
PLANTED = {"all true": 0, "one false": 1, "all false": COUNT}
QUANTITY = {"table": "comparisons", "column": "throughput", "for_each": "network"}


def figures() -> Iterator[Figure]:
    """Wrong and right decisive verdicts on claims about all and about any, for each noise."""
    for noise in NOISES:
        for case, false in PLANTED.items():
            yield from _study(noise, case, false)


def _study(noise: Noise, case: str, false: int) -> Iterator[Figure]:
    truth = {"all": HOLDS if not false else FAILS, "any": FAILS if false == COUNT else HOLDS}
    found: dict[str, list[bool]] = {}
    for trial in range(TRIALS):
        verdicts = _verdicts(noise, false, trial)
        for quantifier, said in verdicts.items():
            wrong = said in (HOLDS, FAILS) and said != truth[quantifier]
            found.setdefault(f"claim about {quantifier}, {case}: wrong", []).append(wrong)
            found.setdefault(f"claim about {quantifier}, {case}: given", []).append(said == truth[quantifier])
    yield from shares(noise.name, found, {name: "<= 0.1" for name in found if name.endswith("wrong")}, TRIALS)


def _verdicts(noise: Noise, false: int, trial: int) -> dict[str, str]:
    random = np.random.default_rng([1979, false, trial])
    rows = []
    for place in range(COUNT):
        values = noise.factors(random) * LIMIT * (FAR if place < false else 1.0)
        repeat, visit, _ = np.indices(values.shape).reshape(3, -1)
        visits = [str(one) for one in (repeat if noise.repeats > 1 else visit)]
        ensemble = bootstrap(values.ravel(), visits, generator(trial, "claims", place), np.mean)
        rows.append({"network": f"network {place}"} | columns("throughput", ensemble))
    claims = own_claims([
        {
            "id": quantifier, "sentence": "Planted.", "quantifier": quantifier, "quantity": QUANTITY,
            "condition": {"at_least": LIMIT}, "chart": "speedup",
        }
        for quantifier in ("all", "any")
    ])  # fmt: skip
    judged = judge(claims, evidence({"comparisons": rows}))
    return {one["id"]: one["verdict"] for one in judged}
