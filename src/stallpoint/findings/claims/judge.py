"""Verdicts on all claims: one for each combination, and one for each claim."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scipy.stats import t as student_t

from stallpoint.base.statistics import INTERVAL, UNKNOWN
from stallpoint.findings.claims.language import Claim, Condition
from stallpoint.findings.claims.quantity import Evidence, Number, numbers
from stallpoint.findings.finding import plain_json

HOLDS, FAILS, UNCLEAR, UNTESTED = "holds", "does not hold", "not distinguishable", "not tested"
_TAIL = (1 - INTERVAL) / 2
VERDICTS = (HOLDS, FAILS, UNCLEAR, UNTESTED)
Judged = dict[str, Any]
"""A claim with its verdicts, ready for JSON; numbers are objects with value, low and high. None is unbounded, or
unknown where both ends are None."""


def judge(claims: Iterable[Claim], evidence: Evidence) -> list[Judged]:
    """Return each claim, judged by the evidence."""
    return [_judged(claim, evidence) for claim in claims]


def _judged(claim: Claim, evidence: Evidence) -> Judged:
    found = list(_numbers(claim, evidence))
    count = sum(not number.missing for number in found)
    verdicts, among_all = ([_verdict(number, claim, of) for number in found] for of in (1, count))
    combinations = [_entry(number, one) for number, one in zip(found, verdicts, strict=True)]
    copied = ("id", "paper", "sentence", "source", "reading", "chart", "quantifier")
    return {
        **{name: getattr(claim, name) for name in copied},
        "quantity": claim.quantity.name if claim.quantity else "",
        "unit": claim.quantity.unit if claim.quantity else "",
        "percent": bool(claim.quantity and claim.quantity.percent),
        "condition": claim.condition.text if claim.condition else "",
        "verdict": overall(verdicts, among_all, claim.quantifier),
        "counts": {name: verdicts.count(name) for name in VERDICTS if name in verdicts},
        "combinations": combinations,
    }


def _numbers(claim: Claim, evidence: Evidence) -> Iterator[Number]:
    if claim.quantity is None:
        yield Number({}, missing=claim.missing)
        return
    exact = claim.quantity.selection.exact
    for number in numbers(claim.quantity, evidence):
        reason = "" if exact else _mistrust(number, claim.quantity.selection.table, evidence)
        yield replace(number, missing=number.missing or reason)


def _mistrust(number: Number, table: str, evidence: Evidence) -> str:
    """Return why the number's hardware gives no verdict: its A/A controls fail; empty where they agree, or there are
    none."""
    controls = evidence.tables.get("controls")
    if controls is None or controls.empty or "hardware" not in evidence.tables[table]:
        return ""
    disagree = set(controls.loc[~controls["agrees"].astype(bool), "hardware"])
    there = [number.labels["hardware"]] if "hardware" in number.labels else evidence.tables[table]["hardware"].unique()
    wrong = ", ".join(sorted(disagree.intersection(there)))
    return f"no verdict: on {wrong} cells that do the same differ (A/A controls)" if wrong else ""


def _verdict(number: Number, claim: Claim, count: int) -> str:
    """Return the verdict on one of `count` combinations."""
    if number.missing or claim.condition is None:
        return UNTESTED
    return verdict(*among(number.value, number.low, number.high, count), claim.condition)


def _entry(number: Number, found: str) -> dict[str, Any]:
    ends = plain_json({"value": number.value, "low": number.low, "high": number.high})
    return {
        "labels": {name: _plain(label) for name, label in number.labels.items()},
        "verdict": found,
        "number": None if number.missing else ends,
        "basis": number.basis,
        "or_more": number.censored,
        "rows": len(number.rows),
        "missing": number.missing,
    }


def _plain(label: Any) -> str | int | float | bool:
    """Return a label as a JSON type."""
    value = label.item() if hasattr(label, "item") else label
    return value if isinstance(value, str | int | float | bool) else str(value)


def rows(judged: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the claims table."""
    return [_row(claim, entry) for claim in judged for entry in claim["combinations"]]


def _row(claim: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    number = entry["number"] or {}
    of_claim = ("paper", "sentence", "source", "verdict", "quantity", "condition", "chart")
    return {
        **{name: claim[name] for name in of_claim},
        **{name: entry[name] for name in ("basis", "rows", "missing")},
        "claim": claim["id"],
        "combination": ", ".join(f"{name} {label}" for name, label in entry["labels"].items()),
        "combination_verdict": entry["verdict"],
        "value": number.get("value"),
        "value_low": _end(number, "low", -math.inf),
        "value_high": _end(number, "high", math.inf),
    }


def _end(number: Mapping[str, Any], name: str, unbounded: float) -> float | None:
    """Return an end of the interval; None without a number or an interval."""
    if not number or (number["low"] is None and number["high"] is None):
        return None
    return unbounded if number[name] is None else float(number[name])


# --- a number against its condition ---------------------------------------------------------------


def verdict(low: float, high: float, condition: Condition) -> str:
    """Return whether the interval lies inside the condition, outside, or neither (or is unknown)."""
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
    """Return the interval [low, high] of `value`, widened so that `count` of them all cover theirs with the same
    confidence.

    Bonferroni's correction, by which Holm (1979) rejects the first of several hypotheses: each tail is `count` times
    less likely. Tails are those of few visits, Student's t with the degrees of freedom of a single one's prior.
    """
    if count < 2 or not math.isfinite(value):
        return low, high
    longer = float(student_t.isf(_TAIL / count, UNKNOWN.freedom) / student_t.isf(_TAIL, UNKNOWN.freedom))
    return value - longer * (value - low), value + longer * (high - value)


def overall(verdicts: Sequence[str], among_all: Sequence[str], quantifier: str) -> str:
    """Return the verdict on a claim about ``all`` or ``any`` of its combinations.

    `verdicts` are those of single combinations, `among_all` the same by intervals as `among` makes them: one of many
    combinations lies outside by chance, so that it refutes a claim about all, or proves one about any, by these
    alone. Combinations that were not tested do not count, unless none was.
    """
    tested = {one for one in verdicts if one != UNTESTED}
    if not tested:
        return UNTESTED
    one, each = (FAILS, HOLDS) if quantifier == "all" else (HOLDS, FAILS)
    if one in among_all:
        return one
    return each if tested == {each} else UNCLEAR
