"""All claims against all tables: a verdict for each combination, and one for each claim."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stallpoint.claims.language import Claim
from stallpoint.claims.quantity import Evidence, Number, numbers
from stallpoint.claims.verdict import UNTESTED, VERDICTS, overall, verdict

Judged = dict[str, Any]
"""A claim with its verdicts, ready for JSON; numbers are objects with value, low and high, where None is unbounded, or
not known where both ends are."""


def judge(claims: Iterable[Claim], evidence: Evidence) -> list[Judged]:
    """Each claim, judged by the evidence."""
    return [_judged(claim, evidence) for claim in claims]


def _judged(claim: Claim, evidence: Evidence) -> Judged:
    combinations = list(_combinations(claim, evidence))
    verdicts = [entry["verdict"] for entry in combinations]
    return {
        "id": claim.id,
        "paper": claim.paper,
        "sentence": claim.sentence,
        "source": claim.source,
        "reading": claim.reading,
        "quantity": claim.quantity.name if claim.quantity else "",
        "unit": claim.quantity.unit if claim.quantity else "",
        "percent": bool(claim.quantity and claim.quantity.percent),
        "condition": claim.condition.text if claim.condition else "",
        "chart": claim.chart,
        "verdict": overall(verdicts),
        "counts": {name: verdicts.count(name) for name in VERDICTS if name in verdicts},
        "combinations": combinations,
    }


def _combinations(claim: Claim, evidence: Evidence) -> Iterator[dict[str, Any]]:
    if claim.quantity is None or claim.condition is None:
        yield _entry(Number({}, missing=claim.missing), UNTESTED)
        return
    for number in numbers(claim.quantity, evidence):
        yield _entry(number, UNTESTED if number.missing else verdict(number.low, number.high, claim.condition))


def _entry(number: Number, found: str) -> dict[str, Any]:
    ends = {"value": number.value, "low": number.low, "high": number.high}
    return {
        "labels": {name: _plain(label) for name, label in number.labels.items()},
        "verdict": found,
        "number": None if number.missing else {name: _finite(end) for name, end in ends.items()},
        "basis": number.basis,
        "or_more": number.censored,
        "rows": len(number.rows),
        "missing": number.missing,
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(label: Any) -> str | int | float | bool:
    """A label as JSON knows it."""
    value = label.item() if hasattr(label, "item") else label
    return value if isinstance(value, str | int | float | bool) else str(value)


def rows(judged: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the claims table."""
    return [_row(claim, entry) for claim in judged for entry in claim["combinations"]]


def _row(claim: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    number = entry["number"] or {}
    return {
        "paper": claim["paper"],
        "claim": claim["id"],
        "sentence": claim["sentence"],
        "source": claim["source"],
        "verdict": claim["verdict"],
        "combination": ", ".join(f"{name} {label}" for name, label in entry["labels"].items()),
        "combination_verdict": entry["verdict"],
        "quantity": claim["quantity"],
        "condition": claim["condition"],
        "value": number.get("value"),
        "value_low": _end(number, "low", -math.inf),
        "value_high": _end(number, "high", math.inf),
        "basis": entry["basis"],
        "rows": entry["rows"],
        "missing": entry["missing"],
        "chart": claim["chart"],
    }


def _end(number: Mapping[str, Any], name: str, unbounded: float) -> float | None:
    """An end of the interval; None where there is no number or no interval."""
    if not number or (number["low"] is None and number["high"] is None):
        return None
    return unbounded if number[name] is None else float(number[name])
