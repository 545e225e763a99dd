"""Verdicts on claims: one for each combination, and one for each claim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from stallpoint.base.distributions import student_quantile
from stallpoint.base.statistics import INTERVAL, VISIT_PRIOR
from stallpoint.questions.claims.language import Claim, Condition
from stallpoint.questions.claims.quantity import Evidence, Number, numbers

_TAIL = (1 - INTERVAL) / 2


class ClaimVerdict(StrEnum):
    """The possible verdicts on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNCLEAR = "not distinguishable"
    UNTESTED = "not tested"


HOLDS, FAILS, UNCLEAR, UNTESTED = ClaimVerdict


@dataclass(frozen=True)
class Combination:
    """One number of a claim, and the verdict on it."""

    number: Number
    verdict: ClaimVerdict


@dataclass(frozen=True)
class JudgedClaim:
    """A claim, its verdict, and the verdicts on its combinations."""

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
        """What the study lacks to test the first untested combination; empty if all were tested."""
        return next((one.number.missing for one in self.combinations if one.number.missing), "")


def judge(claims: Iterable[Claim], evidence: Evidence) -> list[JudgedClaim]:
    """Return the claims with the verdicts that the evidence supports."""
    return [_judge_claim(claim, evidence) for claim in claims]


def _judge_claim(claim: Claim, evidence: Evidence) -> JudgedClaim:
    found = list(_numbers(claim, evidence))
    count = sum(not number.missing for number in found)
    verdicts, among_all = ([_verdict(number, claim, of) for number in found] for of in (1, count))
    combinations = [Combination(number, one) for number, one in zip(found, verdicts, strict=True)]
    return JudgedClaim(claim, claim_verdict(verdicts, among_all, claim.quantifier), combinations)


def _numbers(claim: Claim, evidence: Evidence) -> Iterator[Number]:
    if claim.quantity is None:
        yield Number({}, missing=claim.missing)
        return
    is_exact = claim.quantity.selection.exact
    for number in numbers(claim.quantity, evidence):
        reason = "" if is_exact else _mistrust(number, claim.quantity.selection.table, evidence)
        yield replace(number, missing=number.missing or reason)


def _mistrust(number: Number, table: str, evidence: Evidence) -> str:
    """Return why A/A controls allow no verdict on the number's hardware; empty if no control there differs."""
    control_rows = evidence.tables.get("controls")
    if control_rows is None or control_rows.empty or "hardware" not in evidence.tables[table]:
        return ""
    differing_hardware = set(control_rows.loc[~control_rows["agrees"].astype(bool), "hardware"])
    labels = [number.labels["hardware"]] if "hardware" in number.labels else evidence.tables[table]["hardware"].unique()
    names = ", ".join(sorted(differing_hardware.intersection(labels)))
    return f"no verdict: on {names} cells that do the same differ (A/A controls)" if names else ""


def _verdict(number: Number, claim: Claim, count: int) -> ClaimVerdict:
    """Return the verdict on a number, as one of `count` combinations that are judged together."""
    if number.missing or claim.condition is None:
        return UNTESTED
    return verdict(*widen_interval(number.value, number.low, number.high, count), claim.condition)


def rows(judged_claims: Sequence[JudgedClaim]) -> list[dict[str, object]]:
    """Return the rows of the table of claims."""
    return [_row(one, combination) for one in judged_claims for combination in one.combinations]


def _row(judged_claim: JudgedClaim, combination: Combination) -> dict[str, object]:
    claim, number = judged_claim.claim, combination.number
    known_values = {} if number.missing else {"value": number.value, "value_low": number.low, "value_high": number.high}
    return {
        **{name: getattr(claim, name) for name in ("paper", "sentence", "source", "chart")},
        **{name: getattr(number, name) for name in ("basis", "missing")},
        "verdict": judged_claim.verdict,
        "quantity": claim.quantity.name if claim.quantity else "",
        "condition": claim.condition.text if claim.condition else "",
        "rows": len(number.rows),
        "claim": claim.id,
        "combination": ", ".join(f"{name} {label}" for name, label in number.labels.items()),
        "combination_verdict": combination.verdict,
        **{name: known_values.get(name) for name in ("value", "value_low", "value_high")},
    }


# --- judging a number by its condition ------------------------------------------------------------


def verdict(low: float, high: float, condition: Condition) -> ClaimVerdict:
    """Return `HOLDS` if all of the interval meets the condition, `FAILS` if none of it does, otherwise `UNCLEAR`."""
    if math.isnan(low) or math.isnan(high):
        return UNCLEAR
    is_above = low >= condition.low if condition.low_belongs else low > condition.low
    is_below = high <= condition.high if condition.high_belongs else high < condition.high
    if is_above and is_below:
        return HOLDS
    is_too_low = high < condition.low if condition.low_belongs else high <= condition.low
    is_too_high = low > condition.high if condition.high_belongs else low >= condition.high
    return FAILS if is_too_low or is_too_high else UNCLEAR


def widen_interval(value: float, low: float, high: float, count: int) -> tuple[float, float]:
    """Return the interval [low, high] of `value`, widened for `count` values. Their widened intervals contain all true
    values as surely as a single interval [low, high] contains its true value.

    Bonferroni's correction, by which Holm (1979) rejects the first of several hypotheses: each tail is `count` times
    less likely. Tails are those of Student's t, with the degrees of freedom of the prior for a single visit.
    """
    if count < 2 or not math.isfinite(value):
        return low, high
    factor = float(student_quantile(_TAIL / count, VISIT_PRIOR.freedom) / student_quantile(_TAIL, VISIT_PRIOR.freedom))
    return value - factor * (value - low), value + factor * (high - value)


def claim_verdict(verdicts: Sequence[ClaimVerdict], cautious: Sequence[ClaimVerdict], quantifier: str) -> ClaimVerdict:
    """Return the verdict on a claim about ``all`` or ``any`` of its combinations.

    `verdicts` judge each combination by its interval, `cautious` by its wider interval (`widen_interval`). Of many
    intervals, some miss the true value by chance. Only by its wider interval can a single combination therefore refute
    a claim about all, or prove a claim about any. Untested combinations are ignored.
    """
    tested_verdicts = {one for one in verdicts if one != UNTESTED}
    if not tested_verdicts:
        return UNTESTED
    one, each = (FAILS, HOLDS) if quantifier == "all" else (HOLDS, FAILS)
    if one in cautious:
        return one
    return each if tested_verdicts == {each} else UNCLEAR
