"""Do the claims of papers, and the study's own claims, hold here?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import isnan

from stallpoint.base.section import Absence, Finding, Section, TextTable
from stallpoint.base.statistics import Estimate
from stallpoint.questions.claims.claim_files import OWN
from stallpoint.questions.claims.judge import FAILS, HOLDS, UNCLEAR, UNTESTED, ClaimVerdict, Combination, JudgedClaim
from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.study_words import count
from stallpoint.text import interval, number

TITLE = "What papers claim"
TEXT = (
    "Claims of papers and of the study itself, judged by this study. A claim holds where the whole interval of its "
    "number meets the condition, does not hold where none of it does, and is not distinguishable in between. One "
    "combination for which it does not hold decides; untested combinations are ignored, unless all are untested."
)
HEAD = ("claim", "verdict", "numbers", "source", "chart")
KEY_COLUMNS = ("network", "hardware")
"""Labels that always name a combination; other labels do if they differ between combinations."""
HIDDEN_COLUMNS = ("basis", "extrapolated")
"""Labels that the words for the number already contain."""
MAX_COMBINATIONS, MAX_UNTESTED = 4, 3
"""Largest number of combinations named for a claim, and of untested ones by what is missing; claims.parquet has all."""
PLURAL_VERDICTS = {HOLDS: "hold", FAILS: "do not", UNCLEAR: str(UNCLEAR), UNTESTED: str(UNTESTED)}
SINGULAR_VERDICTS = PLURAL_VERDICTS | {HOLDS: "holds", FAILS: "does not"}
OTHER_VERDICTS = {HOLDS: "hold", FAILS: "refute it", UNCLEAR: "undecided", UNTESTED: "not tested"}
"""Words for the remaining combinations of a claim."""


def section(study: StudyTables) -> Section:
    """Return the section: the counts of verdicts, and a table of the tested claims of each paper."""
    if not study.claims:
        reason = "No claim was judged: the study names no file of claims."
        return Section("claims", TITLE, "Papers", reason, absence=Absence.NONE_FOUND)
    tested_claims = [one for one in study.claims if one.verdict != UNTESTED]
    paper_names = dict.fromkeys(one.claim.paper for one in tested_claims)
    grids = tuple(_grid(paper, [one for one in tested_claims if one.claim.paper == paper]) for paper in paper_names)
    return Section("claims", TITLE, "Papers", TEXT, tuple(_counts(study.claims)), grids)


def _counts(judged_claims: Sequence[JudgedClaim]) -> Iterator[Finding]:
    """Yield the counts of verdicts on claims of papers, on claims of the study, and the number of untested claims."""
    for whose, own in (("claims of papers", False), ("claims of this study", True)):
        verdicts = [one.verdict for one in judged_claims if (one.claim.paper == OWN) == own and one.verdict != UNTESTED]
        if verdicts:
            yield Finding("claims", whose, counted(Counter(verdicts)))
    if untested := sum(one.verdict == UNTESTED for one in judged_claims):
        yield Finding(
            "claims", "not tested", f"{untested} of {len(judged_claims)} claims; claims.parquet says what each lacks"
        )


def counted(counts: Counter[ClaimVerdict]) -> str:
    """Return how many claims have each verdict: ``7 hold, 3 do not, 4 not distinguishable, 9 not tested``."""
    words = {many: SINGULAR_VERDICTS if many == 1 else PLURAL_VERDICTS for many in counts.values()}
    return ", ".join(f"{many} {words[many][verdict]}" for verdict in ClaimVerdict if (many := counts[verdict]))


def _grid(paper: str, judged_claims: Sequence[JudgedClaim]) -> TextTable:
    order = list(ClaimVerdict)
    rows = tuple(
        (one.claim.sentence + (f" ({one.claim.reading})" if one.claim.reading else ""), verdict_in_words(one),
         _numbers(one), one.claim.source, one.claim.chart)
        for one in sorted(judged_claims, key=lambda one: order.index(one.verdict))
    )  # fmt: skip
    counts = counted(Counter(one.verdict for one in judged_claims))
    title = f"{paper}: {count(len(judged_claims), 'claim')}, {counts}"
    return TextTable(HEAD, rows, title, file="claims.parquet", folded=True)


def verdict_in_words(judged_claim: JudgedClaim) -> str:
    """Return the verdict in words, with counts if combinations have different verdicts."""
    counts, verdict = judged_claim.counts, judged_claim.verdict
    if len(counts) <= 1:
        return str(verdict)
    phrase = {HOLDS: "holds for", FAILS: "refuted by"}.get(verdict, "")
    first = f"{phrase} {counts[verdict]} of {sum(counts.values())} combinations; " if phrase else ""
    others = [f"{many} {OTHER_VERDICTS[name]}" for name, many in counts.items() if name != verdict or not first]
    return first + ", ".join(others)


def _numbers(judged: JudgedClaim) -> str:
    """Return the quantity and condition of a claim, and the number of each combination."""
    claim = judged.claim
    test = f"{claim.quantity.name}: {claim.condition.text}" if claim.quantity and claim.condition else ""
    tested, untested = combinations(judged)
    found = tested or untested
    rest = [f"and {len(found) - MAX_COMBINATIONS} more"] if len(found) > MAX_COMBINATIONS else []
    return "; ".join([*filter(None, [test]), *found[:MAX_COMBINATIONS], *rest])


def combinations(judged: JudgedClaim) -> tuple[list[str], list[str]]:
    """Return the tested combinations with their numbers and verdicts, and the untested ones by what is missing."""
    shown = _shown_labels(judged.combinations)
    tested, missing = [], dict[str, list[str]]()
    for one in judged.combinations:
        name = _combination_in_words(one, shown)
        if one.number.missing:
            missing.setdefault(one.number.missing, []).append(name)
        else:
            tested.append(f"{name}: " * bool(name) + f"{number_in_words(judged, one)}, {one.verdict}")
    return tested, [f"{_joined_names(names)}{UNTESTED}, {why}" for why, names in missing.items()]


def _joined_names(names: Iterable[str]) -> str:
    found = [name for name in names if name]
    rest = f" and {len(found) - MAX_UNTESTED} more" if len(found) > MAX_UNTESTED else ""
    return f"{'; '.join(found[:MAX_UNTESTED])}{rest}: " if found else ""


def number_in_words(judged: JudgedClaim, one: Combination) -> str:
    """Return a combination's number in words: ``4.2 (3.9–4.6), predicted``. Infinite ends mean unbounded."""
    found, quantity = one.number, judged.claim.quantity
    scale, unit = 1.0, f" {quantity.unit}" if quantity and quantity.unit else ""
    if quantity and quantity.percent:
        scale, unit = 100.0, " %"
    basis = f", {found.basis}" if found.basis else ""
    text = "" if isnan(found.value) else f"{number(found.value * scale)}{unit}"
    if found.censored:
        return f"{text} or more{basis}"
    unknown = isnan(found.low) and isnan(found.high)
    if not isnan(found.value) and (unknown or found.low == found.high):
        return f"{text}{' (no interval)' if unknown else ''}{basis}"
    if isnan(found.value):
        ends = interval(Estimate(0.0, found.low, found.high), scale, unit)
        return f"{ends.partition(' (')[2].rstrip(')')}{basis}"
    return f"{interval(Estimate(found.value, found.low, found.high), scale, unit)}{basis}"


def _shown_labels(entries: Sequence[Combination]) -> list[str]:
    """Return the labels that name a combination: network and hardware, and others that differ between combinations."""
    names = dict.fromkeys(name for entry in entries for name in entry.number.labels)
    return [name for name in names if name in KEY_COLUMNS or (name not in HIDDEN_COLUMNS and _varies(name, entries))]


def _varies(name: str, entries: Sequence[Combination]) -> bool:
    labels = [entry.number.labels for entry in entries]
    has_one_worker_per_node = name == "ranks" and all(of.get("ranks") == of.get("nodes") for of in labels)
    return not has_one_worker_per_node and len({of.get(name) for of in labels}) > 1


def _combination_in_words(entry: Combination, shown: Sequence[str]) -> str:
    labels = entry.number.labels
    return ", ".join(_label_in_words(name, labels[name]) for name in shown if labels.get(name) not in (None, ""))


def _label_in_words(name: str, label: object) -> str:
    """Return a label in words: its value, preceded by the column's name if it would be unclear."""
    return {
        "nodes": "n = {}", "batch": "batch {}", "worker_batch": "b = {}", "ranks": "{} workers",
        "prefetch": "prefetch {}", "against": "against {}",
    }.get(name, "{}").format(label)  # fmt: skip
