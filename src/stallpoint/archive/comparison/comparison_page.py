"""Comparisons as files: a web page that opens from disk, text and data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from stallpoint.archive.comparison.change import LEVEL
from stallpoint.archive.comparison.changes import Comparison
from stallpoint.archive.comparison.comparison_words import (
    NOUNS,
    finding,
    heads,
    how,
    names,
    percent,
    summary,
    table,
    title,
    to_markdown,
    verdicts,
)
from stallpoint.base.frames import records
from stallpoint.base.statistics import INTERVAL, SAME_WITHIN
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import write
from stallpoint.records.tables import COMPARISON
from stallpoint.report.charts import marks, theme
from stallpoint.report.charts.render import Spec, to_spec
from stallpoint.report.charts.web_page import grid, page

MAX_DOTS = 40
"""Number of answers drawn per family: those least likely to be unchanged."""
WIDTH = 560


def to_html(comparison: Comparison) -> str:
    """Return the page ``comparison.html``."""
    return page(title(comparison), _parts(comparison))


def _parts(comparison: Comparison) -> Iterable[str | Spec]:
    yield "".join(f"<p>{escape(sentence)}</p>" for sentence in summary(comparison))
    yield f'<p class="soft">{escape(how(comparison))}</p>'
    drawn = [family for family in NOUNS if len(comparison.of(family))]
    for family in drawn:
        yield dots(comparison, family)
    yield f"<h2>Verdicts</h2>{grid(('curve', 'old', 'new', ''), verdicts(comparison))}"
    for family in drawn:
        rows = table(comparison, family)
        yield f"<details><summary>{NOUNS[family]}</summary>{grid(heads(comparison, family), rows)}</details>"
    others = [list(row.values()) for row in comparison.settings]
    yield f"<h2>What else differs</h2>{grid(('hardware', 'what', 'old', 'new'), others) if others else 'Nothing.'}"


def dots(comparison: Comparison, family: str) -> Spec:
    """Return ratios of a family with their intervals, one above the other; the title is the finding."""
    rows = comparison.of(family)
    frame = rows.assign(name=names(rows), shown=[percent(row) for row in records(rows)])
    frame = frame.nsmallest(MAX_DOTS, "p").sort_values("ratio", ascending=False)
    more = f" (the {MAX_DOTS} least alike are drawn)" if len(rows) > MAX_DOTS else ""
    columns = ["name", "ratio", "ratio_low", "ratio_high", "change", "shown"]
    what = {"speedup": "speedup", "layer": "time beside the other layers"}.get(family, "time")
    chart = _dots(frame[columns], what)
    return {**to_spec(chart), "title": finding(comparison, family) + more}


def _dots(frame: pd.DataFrame, what: str) -> alt.TopLevelMixin:
    scale = alt.Scale(zero=False, nice=False, padding=8)
    x = alt.X("ratio:Q", title=f"{what}, new over old", scale=scale, axis=alt.Axis(format=".3~g"))
    y = alt.Y("name:N", title=None, sort=list(frame["name"]), axis=alt.Axis(labelLimit=400, labelOverlap=False))
    colour = marks.colour(frame, "change")
    base = alt.Chart().encode(y=y, color=colour, tooltip=marks.tips(name=what, shown="changed by", change="that is"))
    margin = pd.DataFrame({"low": [1 / (1 + SAME_WITHIN)], "high": [1 + SAME_WITHIN], "one": [1.0]})
    chart: alt.TopLevelMixin = alt.layer(
        alt.Chart(margin).mark_rect(opacity=0.12, color=theme.GREY).encode(x=marks.at(x, "low"), x2="high:Q"),
        alt.Chart(margin).mark_rule(style="ideal").encode(x=marks.at(x, "one")),
        base.mark_rule(strokeWidth=1.5).encode(x=marks.at(x, "ratio_low"), x2="ratio_high:Q"),
        base.mark_point(filled=True, size=45, opacity=1).encode(x=x),
        data=frame,
    ).properties(width=WIDTH, height=alt.Step(16))
    return chart


def write_comparison(comparison: Comparison, files: Mapping[str, Path]) -> None:
    """Write the comparison to the `files`, a path for each of `FORMATS`."""
    rows = rows_of(comparison)
    write(COMPARISON, rows, files["parquet"])
    text = json.dumps(to_data(comparison, rows), indent=1, allow_nan=False) + "\n"
    for name, content in (("md", to_markdown(comparison)), ("json", text), ("html", to_html(comparison))):
        with atomic(files[name]) as scratch:
            scratch.write_text(content, encoding="utf-8")


def rows_of(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the rows in the types of their table; None where a column does not apply."""
    integers = {field.name for field in COMPARISON.schema if str(field.type) == "int64"}
    return [
        {name: None if value != value else int(value) if name in integers else value for name, value in row.items()}
        for row in records(comparison.rows)
    ]


def to_data(comparison: Comparison, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the comparison for JSON (docs/schemas/compare.schema.json); `rows` are its rows, typed as their table."""
    return {
        "version": 1,
        "old": {"name": comparison.old.name, "began": comparison.old.began.isoformat()},
        "new": {"name": comparison.new.name, "began": comparison.new.began.isoformat()},
        "interval": INTERVAL,
        "level": LEVEL,
        "margin": SAME_WITHIN,
        "between": comparison.between,
        "summary": summary(comparison),
        "moved": sorted(comparison.moved),
        "answers": rows,
        "verdicts": list(comparison.verdicts),
        "settings": list(comparison.settings),
        "alone": dict(comparison.unmatched),
    }
