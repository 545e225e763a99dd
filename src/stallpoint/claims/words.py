"""Judged claims in words: a section of the conclusions, and one line for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stallpoint.charts.frames import number
from stallpoint.claims.verdict import UNTESTED, VERDICTS

HEAD = ("claim", "source", "verdict", "numbers", "chart")
ALWAYS = ("network", "hardware")
"""Labels that a combination is always named by; others where they differ between combinations."""
MOST = 6
"""Combinations that a table names for each claim; all are in conclusions.json and claims.parquet."""
SUMMARY = {"holds": "hold", "does not hold": "do not", "not distinguishable": "not distinguishable", UNTESTED: UNTESTED}
CAPTION = (
    "What papers claim, judged by this study: a claim holds where the whole interval of its number meets the condition, "
    "does not hold where none of it does, and is not distinguishable in between. One combination for which it does not "
    "hold decides; those that were not tested do not count unless none was."
)


def summary_line(judged: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many claims of papers hold, in one line; none without claims."""
    if not judged:
        return []
    counts = Counter(claim["verdict"] for claim in judged)
    return ["claims of the papers: " + ", ".join(f"{counts[name]} {SUMMARY[name]}" for name in VERDICTS)]


def blocks(judged: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The section of conclusions.md, a table for each paper."""
    if not judged:
        return
    yield "## Claims"
    yield CAPTION
    for paper in dict.fromkeys(claim["paper"] for claim in judged):
        yield f"### {paper}"
        lines = [HEAD, ("---",) * len(HEAD), *(_row(claim) for claim in judged if claim["paper"] == paper)]
        yield "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _row(claim: Mapping[str, Any]) -> tuple[str, ...]:
    chart = f"[{claim['chart']}](figures/{claim['chart']}.html)" if claim["chart"] else ""
    texts = (claim["sentence"], claim["source"], f"**{verdict_in_words(claim)}**", _numbers(claim), chart)
    return tuple(text.replace("|", "\\|").replace("\n", " ") for text in texts)


def _numbers(claim: Mapping[str, Any]) -> str:
    found = combinations(claim)
    more = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
    return "; ".join([*filter(None, [decides(claim)]), *found[:MOST], *more])


def verdict_in_words(claim: Mapping[str, Any]) -> str:
    """The verdict, with counts where combinations differ."""
    counts = claim["counts"]
    if len(counts) == 1:
        return str(claim["verdict"])
    return f"{claim['verdict']} ({', '.join(f'{count} {name}' for name, count in counts.items())})"


def decides(claim: Mapping[str, Any]) -> str:
    """Which number must be what; empty where no table can tell."""
    return f"{claim['quantity']}: {claim['condition']}" if claim["condition"] else ""


def combinations(claim: Mapping[str, Any]) -> list[str]:
    """Each combination with its number and verdict; those that lack the same together, last."""
    tested = [entry for entry in claim["combinations"] if not entry["missing"]]
    shown = _shown(claim["combinations"])
    texts = [f"{_named(entry, shown)}{number_in_words(claim, entry)}, {entry['verdict']}" for entry in tested]
    missing: dict[str, list[str]] = {}
    for entry in claim["combinations"]:
        if entry["missing"]:
            missing.setdefault(entry["missing"], []).append(_named(entry, shown).removesuffix(": "))
    untested = (f"{', '.join(filter(None, names))}: " if any(names) else "" for names in missing.values())
    return texts + [f"{names}{UNTESTED}, {why}" for names, why in zip(untested, missing, strict=True)]


def number_in_words(claim: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """``4.2 [3.9, 4.6], predicted``; unbounded ends are infinite."""
    scale, unit = (100.0, " %") if claim["percent"] else (1.0, f" {claim['unit']}" if claim["unit"] else "")
    value, low, high = (entry["number"][name] for name in ("value", "low", "high"))
    ends = f" [{_end(low, scale, '-∞')}, {_end(high, scale, '∞')}]"
    if low is None and high is None:
        ends = " (no interval)" if value is not None else ""
    elif value == low == high:
        ends = ""
    basis = f", {entry['basis']}" if entry["basis"] else ""
    return f"{_end(value, scale, 'unbounded')}{unit}{ends}{basis}"


def _end(value: float | None, scale: float, unbounded: str) -> str:
    return unbounded if value is None else number(value * scale)


def _shown(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Labels worth naming: network and hardware, and what differs between combinations."""
    names = dict.fromkeys(name for entry in entries for name in entry["labels"])
    return [name for name in names if name in ALWAYS or len({entry["labels"].get(name) for entry in entries}) > 1]


def _named(entry: Mapping[str, Any], shown: Sequence[str]) -> str:
    labels = entry["labels"]
    texts = [_text(name, labels[name]) for name in shown if labels.get(name) not in (None, "")]
    return f"{', '.join(texts)}: " if texts else ""


def _text(name: str, label: Any) -> str:
    """A label as a reader says it: its value, and what it is where that does not say itself."""
    symbols = {"nodes": "n = ", "batch": "batch ", "worker_batch": "b = ", "prefetch": "prefetch ", "against": "against "}
    return f"{symbols.get(name, '')}{label}"
