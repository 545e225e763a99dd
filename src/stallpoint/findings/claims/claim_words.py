"""Judged claims in words: a section of details.md, and their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stallpoint.findings.claims.claim_files import OWN
from stallpoint.findings.claims.judge import FAILS, HOLDS, UNCLEAR, UNTESTED, VERDICTS
from stallpoint.findings.listing import markdown_table
from stallpoint.text import interval, number, plain

HEAD = ("claim", "source", "verdict", "numbers", "chart")
ALWAYS = ("network", "hardware")
"""Labels that always name a combination; others only where they differ between combinations."""
SHOWN_ELSEWHERE = ("basis", "extrapolated")
"""Labels that the number's words contain."""
MAX_COMBINATIONS, MAX_UNTESTED = 4, 3
"""Largest number of combinations listed per claim, and of those that lack the same; conclusions.json and claims.parquet
have all."""
PLURAL = {HOLDS: "hold", FAILS: "do not", UNCLEAR: UNCLEAR, UNTESTED: UNTESTED}
REST = {HOLDS: "hold", FAILS: "refute it", UNCLEAR: "undecided", UNTESTED: "not tested"}
"""Words for the remaining combinations of a claim."""
CAPTION = (
    "Claims of papers and of the study itself, judged by this study. A claim holds where the whole interval of its "
    "number meets the condition, "
    "does not hold where none of it does, and is not distinguishable in between. One combination for which it does not "
    "hold decides; untested combinations are ignored, unless all are untested."
)


def summary_lines(judged: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the counts of verdicts, a line for the papers' claims and one for the study's own; none without claims."""
    for whose, own in (("of papers", False), ("of this study", True)):
        if counts := Counter(claim["verdict"] for claim in judged if (claim["paper"] == OWN) == own):
            yield f"{whose}: {counted(counts)}"


def counted(counts: Mapping[str, int]) -> str:
    """Return ``7 hold, 3 do not, 4 not distinguishable, 9 not tested``, without zeros."""
    return ", ".join(f"{counts[name]} {PLURAL[name]}" for name in VERDICTS if counts.get(name))


def blocks(judged: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the section of details.md: a table of each paper's tested claims and of all of the study's own."""
    if not judged:
        return
    yield "## Claims"
    yield CAPTION
    for paper in dict.fromkeys(claim["paper"] for claim in judged):
        yield f"### {plain(paper)}"
        of_paper = [claim for claim in judged if claim["paper"] == paper]
        if shown := [_row(claim) for claim in of_paper if claim["verdict"] != UNTESTED or paper == OWN]:
            yield markdown_table(HEAD, shown)
        if untested := len(of_paper) - len(shown):
            yield f"{untested} not tested; the report says which cells each of them lacks."


def _row(claim: Mapping[str, Any]) -> tuple[str, ...]:
    chart = f"[{claim['chart']}](figures/{claim['chart']}.html)" if claim["chart"] else ""
    sentence, source, numbers = map(plain, (claim["sentence"], claim["source"], _numbers(claim)))
    return sentence, source, f"**{verdict_in_words(claim)}**", numbers, chart


def _numbers(claim: Mapping[str, Any]) -> str:
    tested, untested = combinations(claim)
    found = tested or untested
    more = [f"and {len(found) - MAX_COMBINATIONS} more"] if len(found) > MAX_COMBINATIONS else []
    return "; ".join([*filter(None, [decides(claim)]), *found[:MAX_COMBINATIONS], *more])


def verdict_in_words(claim: Mapping[str, Any]) -> str:
    """Return the verdict, with counts where combinations differ."""
    counts = claim["counts"]
    if len(counts) <= 1:
        return str(claim["verdict"])
    decided = {HOLDS: "holds for", FAILS: "refuted by"}.get(claim["verdict"], "")
    first = f"{decided} {counts[claim['verdict']]} of {sum(counts.values())} combinations; " if decided else ""
    others = [
        f"{counts[name]} {REST[name]}"
        for name in VERDICTS
        if counts.get(name) and (name != claim["verdict"] or not first)
    ]
    return first + ", ".join(others)


def decides(claim: Mapping[str, Any]) -> str:
    """Return the deciding number and its condition; empty where no table can tell."""
    return f"{claim['quantity']}: {claim['condition']}" if claim["condition"] else ""


def combinations(claim: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return each combination with its number and verdict, and those not tested, grouped by what they lack."""
    shown = _shown(claim["combinations"])
    tested, missing = [], dict[str, list[str]]()
    for entry in claim["combinations"]:
        name = _named(entry, shown)
        if entry["missing"]:
            missing.setdefault(entry["missing"], []).append(name)
        else:
            tested.append(f"{name}: " * bool(name) + f"{number_in_words(claim, entry)}, {entry['verdict']}")
    return tested, [f"{_joined(names)}{UNTESTED}, {why}" for why, names in missing.items()]


def _joined(names: Sequence[str]) -> str:
    found = [name for name in names if name]
    more = f" and {len(found) - MAX_UNTESTED} more" if len(found) > MAX_UNTESTED else ""
    return f"{'; '.join(found[:MAX_UNTESTED])}{more}: " if found else ""


def number_in_words(claim: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Return ``4.2 (3.9–4.6), predicted``; unbounded ends are infinite."""
    scale, unit = (100.0, " %") if claim["percent"] else (1.0, f" {claim['unit']}" if claim["unit"] else "")
    found = entry["number"]
    value, low, high = (found[name] for name in ("value", "low", "high"))
    basis = f", {entry['basis']}" if entry["basis"] else ""
    text = "" if value is None else f"{number(value * scale)}{unit}"
    if entry["or_more"]:
        return f"{text} or more{basis}"
    if value is not None and low == high:  # exact, or both not known
        return f"{text}{'' if low is not None else ' (no interval)'}{basis}"
    ends = interval({**found, "value": 0.0} if value is None else found, scale, unit)
    return f"{ends.partition(' (')[2].rstrip(')') if value is None else ends}{basis}"


def _shown(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the labels to name: network and hardware, and those that differ between combinations."""
    names = dict.fromkeys(name for entry in entries for name in entry["labels"])
    return [name for name in names if name in ALWAYS or (name not in SHOWN_ELSEWHERE and _differs(name, entries))]


def _differs(name: str, entries: Sequence[Mapping[str, Any]]) -> bool:
    labels = [entry["labels"] for entry in entries]
    one_each = name == "ranks" and all(of.get("ranks") == of.get("nodes") for of in labels)
    return not one_each and len({of.get(name) for of in labels}) > 1


def _named(entry: Mapping[str, Any], shown: Sequence[str]) -> str:
    labels = entry["labels"]
    return ", ".join(_text(name, labels[name]) for name in shown if labels.get(name) not in (None, ""))


def _text(name: str, label: Any) -> str:
    """Return a label as text: its value, preceded by its column unless the value says it."""
    return {
        "nodes": "n = {}", "batch": "batch {}", "worker_batch": "b = {}", "ranks": "{} workers",
        "prefetch": "prefetch {}", "against": "against {}",
    }.get(name, "{}").format(label)  # fmt: skip
