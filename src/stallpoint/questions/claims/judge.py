"""Verdicts on all claims: one for each combination, and one for each claim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from stallpoint.base.distributions import student_quantile
from stallpoint.base.statistics import INTERVAL, UNKNOWN
from stallpoint.questions.claims.language import Claim, Condition
from stallpoint.questions.claims.quantity import Evidence, Number, numbers

_TAIL = (1 - INTERVAL) / 2


class ClaimVerdict(StrEnum):
    """Verdict on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNCLEAR = "not distinguishable"
    UNTESTED = "not tested"


HOLDS, FAILS, UNCLEAR, UNTESTED = ClaimVerdict


@dataclass(frozen=True)
class Combination:
    """A number of a claim, and the verdict on this number."""

    number: Number
    verdict: ClaimVerdict


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with its verdicts."""

    claim: Claim
    verdict: ClaimVerdict
    combinations: Sequence[Combination]

    @property
    def counts(self) -> Mapping[ClaimVerdict, int]:
        """Number of combinations with each verdict, in the order of verdicts."""
        found = Counter(one.verdict for one in self.combinations)
        return {verdict: found[verdict] for verdict in ClaimVerdict if found[verdict]}

    @property
    def missing(self) -> str:
        """What is missing to test the first untested combination; empty if all were tested."""
        return next((one.number.missing for one in self.combinations if one.number.missing), "")


def judge(claims: Iterable[Claim], evidence: Evidence) -> list[JudgedClaim]:
    """Return the claims with their verdicts by the evidence."""
    return [_judged(claim, evidence) for claim in claims]


def _judged(claim: Claim, evidence: Evidence) -> JudgedClaim:
    found = list(_numbers(claim, evidence))
    count = sum(not number.missing for number in found)
    verdicts, among_all = ([_verdict(number, claim, of) for number in found] for of in (1, count))
    combinations = [Combination(number, one) for number, one in zip(found, verdicts, strict=True)]
    return JudgedClaim(claim, overall(verdicts, among_all, claim.quantifier), combinations)


def _numbers(claim: Claim, evidence: Evidence) -> Iterator[Number]:
    if claim.quantity is None:
        yield Number({}, missing=claim.missing)
        return
    exact = claim.quantity.selection.exact
    for number in numbers(claim.quantity, evidence):
        reason = "" if exact else _mistrust(number, claim.quantity.selection.table, evidence)
        yield replace(number, missing=number.missing or reason)


def _mistrust(number: Number, table: str, evidence: Evidence) -> str:
    """Return why the number's hardware gives no verdict: failed A/A controls; empty if all agree, or none ran."""
    controls = evidence.tables.get("controls")
    if controls is None or controls.empty or "hardware" not in evidence.tables[table]:
        return ""
    disagree = set(controls.loc[~controls["agrees"].astype(bool), "hardware"])
    there = [number.labels["hardware"]] if "hardware" in number.labels else evidence.tables[table]["hardware"].unique()
    wrong = ", ".join(sorted(disagree.intersection(there)))
    return f"no verdict: on {wrong} cells that do the same differ (A/A controls)" if wrong else ""


def _verdict(number: Number, claim: Claim, count: int) -> ClaimVerdict:
    """Return the verdict on one of `count` combinations."""
    if number.missing or claim.condition is None:
        return UNTESTED
    return verdict(*among(number.value, number.low, number.high, count), claim.condition)


def rows(judged: Sequence[JudgedClaim]) -> list[dict[str, object]]:
    """Return the rows of the claims table."""
    return [_row(one, combination) for one in judged for combination in one.combinations]


def _row(judged: JudgedClaim, combination: Combination) -> dict[str, object]:
    claim, number = judged.claim, combination.number
    known = {} if number.missing else {"value": number.value, "value_low": number.low, "value_high": number.high}
    return {
        **{name: getattr(claim, name) for name in ("paper", "sentence", "source", "chart")},
        **{name: getattr(number, name) for name in ("basis", "missing")},
        "verdict": judged.verdict,
        "quantity": claim.quantity.name if claim.quantity else "",
        "condition": claim.condition.text if claim.condition else "",
        "rows": len(number.rows),
        "claim": claim.id,
        "combination": ", ".join(f"{name} {label}" for name, label in number.labels.items()),
        "combination_verdict": combination.verdict,
        **{name: known.get(name) for name in ("value", "value_low", "value_high")},
    }


# --- judging a number by its condition ------------------------------------------------------------


def verdict(low: float, high: float, condition: Condition) -> ClaimVerdict:
    """Return `HOLDS` for an interval within the condition, `FAILS` for one outside, `UNCLEAR` else and if unknown."""
    if math.isnan(low) or math.isnan(high):
        return UNCLEAR
    above = low >= condition.low if condition.low_belongs else low > condition.low
    below = high <= condition.high if condition.high_belongs else high < condition.high
    if above and below:
        return HOLDS
    too_low = high < condition.low if condition.low_belongs else high <= condition.low
    too_high = low > condition.high if condition.high_belongs else low >= condition.high
    return FAILS if too_low or too_high else UNCLEAR


def among(value: float, low: float, high: float, count: int) -> tuple[float, float]:
    """Return the interval [low, high] of `value`, widened so that `count` such intervals all cover their true values
    with the same confidence.

    Bonferroni's correction, by which Holm (1979) rejects the first of several hypotheses: each tail is `count` times
    less likely. Tails are those of Student's t with the degrees of freedom of the prior for a single visit.
    """
    if count < 2 or not math.isfinite(value):
        return low, high
    longer = float(student_quantile(_TAIL / count, UNKNOWN.freedom) / student_quantile(_TAIL, UNKNOWN.freedom))
    return value - longer * (value - low), value + longer * (high - value)


def overall(verdicts: Sequence[ClaimVerdict], among_all: Sequence[ClaimVerdict], quantifier: str) -> ClaimVerdict:
    """Return the verdict on a claim about ``all`` or ``any`` of its combinations.

    `verdicts` are those of single combinations, `among_all` those by the wider intervals of `among`. Of many
    combinations one lies outside by chance: a single one refutes a claim about all, or proves a claim about any, only
    by its wider interval. Untested combinations do not count, unless all are untested.
    """
    tested = {one for one in verdicts if one != UNTESTED}
    if not tested:
        return UNTESTED
    one, each = (FAILS, HOLDS) if quantifier == "all" else (HOLDS, FAILS)
    if one in among_all:
        return one
    return each if tested == {each} else UNCLEAR
