"""Web pages of comparisons: charts and tables on one page that opens from disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from string import Template

import altair as alt
import pandas as pd

from stallpoint.charts import marks, theme
from stallpoint.charts.render import Spec, to_spec
from stallpoint.charts.web_page import libraries
from stallpoint.comparison.answers import Comparison, records
from stallpoint.comparison.words import HEADS, NOUNS, finding, how, names, percent, summary, table, title, verdicts
from stallpoint.models.base.statistics import SAME_WITHIN

MOST_DOTS = 40
"""Answers of a family that are drawn: those that are the least likely to be as before."""
WIDTH = 560

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 15px/1.5 $font; color: $ink; background: $page; }
table { border-collapse: collapse; font-size: .9em; }
td { padding: .15rem .8rem .15rem 0; border-bottom: 1px solid $grid; }
thead, .soft { color: $soft; }
.wide { overflow-x: auto; }
</style>
<script>$libraries</script>
</head>
<body>
<h1>$title</h1>
$parts
<script>
for (const [id, spec] of Object.entries($specs)) {
  const draw = () => vegaEmbed("#" + id, spec, {renderer: "svg"}).catch(console.error);
  const closed = document.getElementById(id).closest("details:not([open])");
  if (closed) closed.addEventListener("toggle", draw, {once: true}); else draw();
}
</script>
</body>
</html>
""")


def page(title: str, parts: Iterable[str | Spec]) -> str:
    """A page of pieces of HTML and charts (Vega-Lite), which its script draws."""
    specs: dict[str, Spec] = {}
    pieces = []
    config = theme.config()
    config["legend"] |= {"columns": 3}
    for part in parts:
        if isinstance(part, str):
            pieces.append(part)
            continue
        name = f"chart-{len(specs)}"
        specs[name] = {**part, "config": config}
        pieces.append(f'<div id="{name}"></div>')
    # No tag may stand in a script element, not even inside a text.
    text = json.dumps(specs).replace("<", "\\u003c")
    return _PAGE.substitute(
        theme.LIGHT, title=escape(title), font=theme.FONT, libraries=libraries(), parts="\n".join(pieces), specs=text
    )


def to_html(comparison: Comparison) -> str:
    """The page ``comparison.html``."""
    return page(title(comparison), _parts(comparison))


def _parts(comparison: Comparison) -> Iterable[str | Spec]:
    yield "".join(f"<p>{escape(sentence)}</p>" for sentence in summary(comparison))
    yield f'<p class="soft">{escape(how(comparison))}</p>'
    drawn = [family for family in NOUNS if len(comparison.of(family))]
    for family in drawn:
        yield dots(comparison, family)
    yield f"<h2>Verdicts</h2>{grid(('curve', 'old', 'new', ''), verdicts(comparison))}"
    for family in drawn:
        rows = table(comparison.of(family))
        yield f"<details><summary>{NOUNS[family]}</summary>{grid(HEADS[family], rows)}</details>"
    others = [list(row.values()) for row in comparison.settings]
    yield f"<h2>What else differs</h2>{grid(('hardware', 'what', 'old', 'new'), others) if others else 'Nothing.'}"


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts."""
    first, *others = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in (head, *rows))
    body = "".join(f"<tr>{row}</tr>" for row in others)
    return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>'


def dots(comparison: Comparison, family: str) -> Spec:
    """Ratios of a family with their intervals, one above the other; the title says what they say."""
    rows = comparison.of(family)
    frame = rows.assign(name=names(rows), shown=[percent(row) for row in records(rows)])
    frame = frame.nsmallest(MOST_DOTS, "p").sort_values("ratio", ascending=False)
    more = f" (the {MOST_DOTS} least alike are drawn)" if len(rows) > MOST_DOTS else ""
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
    alike = pd.DataFrame({"low": [1 / (1 + SAME_WITHIN)], "high": [1 + SAME_WITHIN], "one": [1.0]})
    chart: alt.TopLevelMixin = alt.layer(
        alt.Chart(alike).mark_rect(opacity=0.12, color=theme.GREY).encode(x=marks.at(x, "low"), x2="high:Q"),
        alt.Chart(alike).mark_rule(style="ideal").encode(x=marks.at(x, "one")),
        base.mark_rule(strokeWidth=1.5).encode(x=marks.at(x, "ratio_low"), x2="ratio_high:Q"),
        base.mark_point(filled=True, size=45, opacity=1).encode(x=x),
        data=frame,
    ).properties(width=WIDTH, height=alt.Step(16))
    return chart
