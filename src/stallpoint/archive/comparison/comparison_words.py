"""Changes in words: short sentences, and tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from stallpoint.archive.comparison.change import ERROR_RATE
from stallpoint.archive.comparison.changes import CLEAR_CHANGES, Comparison
from stallpoint.base.frames import records
from stallpoint.base.measured import SERIES
from stallpoint.base.section import Change
from stallpoint.base.section_texts import markdown_table
from stallpoint.base.statistics import INTERVAL, SAME_WITHIN
from stallpoint.report.charts.labels import label
from stallpoint.text import interval, number, quote

FAMILY_TITLES = {"point": "Points", "speedup": "Speedups", "layer": "Layers, beside each other"}
"""Families of single changes, and their titles."""
_TABLE_HEADS = {
    "point": ("point", "old [{unit}]", "new [{unit}]", "time changed by", ""),
    "speedup": ("speedup at", "old", "new", "changed by", ""),
    "layer": ("layer", "old [s]", "new [s]", "beside the other layers changed by", ""),
}


def summary(comparison: Comparison) -> list[str]:
    """Return the summary: a sentence for each hardware, each family of changes, and each verdict that moved."""
    return [
        *(_hardware_sentence(row, comparison.unit) for row in records(comparison.of("hardware"))),
        *(finding(comparison, family) + "." for family in FAMILY_TITLES if len(comparison.of(family))),
        *(f"{curve(row)}: {row['old']} before, now {row['new']}." for row in comparison.verdicts if row["moved"]),
        *comparison.notes,
    ]


def _hardware_sentence(row: Mapping[str, Any], unit: str) -> str:
    words = {Change.SAME: f"the same within {number(100 * SAME_WITHIN)} %"}.get(row["change"], row["change"])
    points = f"over {row['points']:.0f} points" if row["points"] > 1 else "at the one point"
    time = "iteration time" if unit == "s" else "time of the same work"
    return f"{row['hardware']}: {time} changed by {percent(row)} {points}: {words}."


def finding(comparison: Comparison, family: str) -> str:
    """Return how many changes of a family are significant, in words: the finding that is the title of its chart."""
    changes = comparison.of(family)["change"]
    words = [f"{(changes == word).sum()} of {len(changes)} {word}" for word in CLEAR_CHANGES if (changes == word).any()]
    same, undecided = ((changes == word).sum() for word in (Change.SAME, Change.UNDECIDED))
    no_change_words = f"none of {len(changes)} changed, {same} the same, {undecided} undecided"
    return f"{FAMILY_TITLES[family]}: {', '.join(words) or no_change_words}"


def percent(row: Mapping[str, Any]) -> str:
    """Return the change in words: ``5.2 % (3.0–7.4)``."""
    ends = (row["ratio"], row["ratio_low"], row["ratio_high"])
    return interval([100 * (end - 1) for end in ends], unit=" %")


def curve(row: Mapping[str, Any]) -> str:
    """Return the name of the curve to which a row belongs."""
    return str(label(pd.DataFrame([{name: row[name] for name in SERIES}]), list(SERIES))[0])


def names(rows: pd.DataFrame) -> list[str]:
    """Return a name for each row of a family. An axis with the same value in all rows is not named."""
    if rows.empty:
        return []
    int_rows = rows.astype(dict.fromkeys(("prefetch", "batch", "workers_per_node", "ranks"), int))
    axes = [name for name in SERIES if int_rows[name].nunique() > 1] or ["network"]
    if rows["subject"].iloc[0] == "layer":
        axes = [name for name in axes if name in ("network", "hardware")] or ["network"]
        return [f"{place} · {layer}" for place, layer in zip(label(int_rows, axes), int_rows["layer"], strict=True)]
    return [f"{series} · n = {ranks}" for series, ranks in zip(label(int_rows, axes), int_rows["ranks"], strict=True)]


def headings(comparison: Comparison, family: str) -> list[str]:
    """Return the headings of `table`."""
    return [head.format(unit=comparison.unit) for head in _TABLE_HEADS[family]]


def table(comparison: Comparison, family: str) -> list[list[str]]:
    """Return a family's rows as texts: name, old value, new value, change in per cent, verdict."""
    rows = comparison.of(family)
    shows_rates = family == "point" and comparison.unit != "s"
    values = ([1 / row[name] if shows_rates else row[name] for name in ("old", "new")] for row in records(rows))
    return [
        [name, *map(number, both), percent(row), row["change"]]
        for name, row, both in zip(names(rows), records(rows), values, strict=True)
    ]


def rules_in_words(comparison: Comparison) -> str:
    """Return the rules of the comparison in words."""
    scatter = comparison.between
    study_scatter = f"studies are taken to lie {number(100 * scatter)} % apart by themselves" if scatter else (
        "what differs between studies beside their visits (the day, other users) is not in the intervals"
    )  # fmt: skip
    return (
        f"Intervals cover {100 * INTERVAL:.0f} %. Equal studies are said to differ anywhere with a chance of "
        f"{number(100 * ERROR_RATE)} %; {study_scatter}."
    )


def to_markdown(comparison: Comparison) -> str:
    """Return the page ``comparison.md``."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    yield f"# {quote(title(comparison))}\n"
    yield from (f"- {quote(sentence)}" for sentence in summary(comparison))
    yield f"\n{rules_in_words(comparison)}{_unmatched_in_words(comparison.unmatched)}\n"
    yield "## Verdicts\n"
    yield _markdown(("curve", "old", "new", "moved"), verdicts(comparison))
    for family in FAMILY_TITLES:
        if rows := table(comparison, family):
            yield f"\n## {finding(comparison, family)}\n"
            yield _markdown(headings(comparison, family), rows)
    yield "\n## What else differs\n"
    yield _markdown(("hardware", "what", "old", "new"), [list(row.values()) for row in comparison.settings])


def title(comparison: Comparison) -> str:
    """Return the names of both studies, with the dates of measurement."""
    old, new = (f"{one.name} ({one.began:%Y-%m-%d})" for one in (comparison.old, comparison.new))
    return f"{new} against {old}"


def verdicts(comparison: Comparison) -> list[list[str]]:
    """Return a row for each verdict: its curve, the old and the new verdict, and whether the verdict moved."""
    return [
        [curve(row), str(row["old"]), str(row["new"]), "moved" if row["moved"] else "–"] for row in comparison.verdicts
    ]


def _unmatched_in_words(unmatched_counts: Mapping[str, int]) -> str:
    words = [f"{count} points are in the {study} study alone" for study, count in unmatched_counts.items() if count]
    return f" {'; '.join(words).capitalize()}." if words else ""


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *others = [list(map(quote, row)) for row in (head, *rows)]
    return markdown_table(first, others) if others else "Nothing."
