"""Claims whose verdicts were planted: how often a decisive one is wrong, over `COUNT` combinations.

A combination that is true lies just at the limit of the condition, where noise decides most often; one that is false
lies `FAR` beyond it. Then claims about the efficiency of a curve's largest worker count, which is 1 whatever was
measured where that is the only one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from judging import Study, shares
from paired import Figure
from planted import NOISES, Noise

from stallpoint.base.frames import frame
from stallpoint.base.statistics import Ensemble, bootstrap, columns, generator
from stallpoint.questions.claims.claim_files import own_claims
from stallpoint.questions.claims.judge import FAILS, HOLDS, judge
from stallpoint.questions.claims.quantity import Evidence
from stallpoint.records.tables import TABLES

TRIALS, COUNT = 40, 10
LIMIT, FAR = 1.0, 0.8
"""Times the limit."""
PLANTED = {"all true": 0, "one false": 1, "all false": COUNT}
QUANTITY = {"table": "comparisons", "column": "throughput", "for_each": "network"}
EFFICIENCY = {
    "table": "predictions", "column": "measured_efficiency", "where": {"ranks": "largest"}, "for_each": "network",
}  # fmt: skip


def studies() -> Iterator[Study]:
    """Wrong and right decisive verdicts on claims about all and about any, for each noise."""
    for noise in NOISES:
        for case, false in PLANTED.items():
            yield partial(_study, noise, case, false)
        for count in (1, 4):
            yield partial(_efficiencies, noise, count)


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


def _efficiencies(noise: Noise, count: int) -> Iterator[Figure]:
    """Claims that hold and that do not of a curve with so many worker counts, 0.8 efficient on the largest."""
    case = f"efficiency, {count} worker count{'s' if count > 1 else ''}"
    claims = own_claims([
        {"id": name, "sentence": "Planted.", "quantity": EFFICIENCY, "condition": of, "chart": "speedup"}
        for name, of in (("true", {"below": 1}), ("false", {"at_least": 0.9}))
    ])  # fmt: skip
    found: dict[str, list[bool]] = {f"{case}: wrong": [], f"{case}: given": []}
    for trial in range(TRIALS):
        random = np.random.default_rng([2017, count, trial])
        times = [_drawn(noise, random, [trial, place]) / FAR ** (place / max(1, count - 1)) for place in range(count)]
        rows = [
            {"network": "n", "hardware": "h", "ranks": 2**place} | columns("measured_efficiency", times[0] / of)
            for place, of in enumerate(times)
        ]
        table = frame(TABLES["predictions"], rows)
        said = {one.claim.id: one.verdict for one in judge(claims, Evidence({"predictions": table}))}
        found[f"{case}: wrong"] += [said["true"] == FAILS, said["false"] == HOLDS]
        found[f"{case}: given"] += [said["true"] == HOLDS, said["false"] == FAILS]
    wanted = {f"{case}: wrong": "<= 0.1"} | ({f"{case}: given": "0"} if count == 1 else {})
    yield from shares(noise.name, found, wanted, TRIALS)


def _drawn(noise: Noise, random: np.random.Generator, key: list[int]) -> Ensemble:
    """A time of 1 s as measured."""
    values = noise.factors(random)
    repeat, visit, _ = np.indices(values.shape).reshape(3, -1)
    visits = [str(one) for one in (repeat if noise.repeats > 1 else visit)]
    return bootstrap(values.ravel(), visits, generator(0, "claims", *key), np.mean)


def _verdicts(noise: Noise, false: int, trial: int) -> dict[str, str]:
    random = np.random.default_rng([1979, false, trial])
    rows = []
    for place in range(COUNT):
        ensemble = _drawn(noise, random, [trial, place]) * LIMIT * (FAR if place < false else 1.0)
        rows.append({"network": f"network {place}"} | columns("throughput", ensemble))
    claims = own_claims([
        {
            "id": quantifier, "sentence": "Planted.", "quantifier": quantifier, "quantity": QUANTITY,
            "condition": {"at_least": LIMIT}, "chart": "speedup",
        }
        for quantifier in ("all", "any")
    ])  # fmt: skip
    table = frame(TABLES["comparisons"], rows)
    judged = judge(claims, Evidence({"comparisons": table}))
    return {one.claim.id: one.verdict for one in judged}
