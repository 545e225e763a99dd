"""A picture for each network on each hardware entry: the answer's card as a slide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap

import vl_convert as vlc

from stallpoint.findings.conclusions.answer_findings import CARD, FIRST, GAIN, RATE, VERDICT, answer_findings
from stallpoint.findings.conclusions.answers import Answer, Conclusions
from stallpoint.findings.finding import Finding
from stallpoint.records.atomic import atomic
from stallpoint.report.charts import Tables, speedup_chart, theme
from stallpoint.report.charts.render import Spec, to_spec
from stallpoint.report.charts.web_page import VEGA_LITE
from stallpoint.report.sections.answer_section import places

WIDTH, HEIGHT = 1280, 720
"""Size of a slide, pixels."""
_MARGIN = 40
_TITLE, _TEXT = 34, 19
"""Heights of letters, pixels."""
CHART = "chart: solid: measured; dashed: predicted, with 90 % intervals; grey: ideal"
_LINE = 118
"""Characters of a line of text."""


def write_slides(conclusions: Conclusions, tables: Tables, folder: Path) -> None:
    """Write ``<hardware>/<network>.png`` for each card of the report; ``<network>-<B>.png`` of one B."""
    folder.mkdir(parents=True, exist_ok=True)
    for (network, hardware, batch), answers in places(conclusions["answers"]).items():
        picture = vlc.vegalite_to_png(slide(answers[0], conclusions, tables), vl_version=VEGA_LITE)
        (folder / hardware).mkdir(exist_ok=True)
        with atomic(folder / hardware / f"{network}{f'-{batch}' if batch else ''}.png") as scratch:
            scratch.write_bytes(picture)


def slide(answer: Answer, conclusions: Conclusions, tables: Tables) -> Spec:
    """Return the slide of one answer as a Vega-Lite spec: the text of the card, and the speedup over workers."""
    found = answer_findings(answer, conclusions)
    chart = to_spec(speedup_chart.draw_verdict(tables, answer["network"], answer["hardware"], answer["of_batch"]))
    config = theme.config()
    letters = {"labelFontSize": _TEXT - 3, "titleFontSize": _TEXT - 2}
    return {
        **chart,
        "width": WIDTH,
        "height": HEIGHT,
        "autosize": {"type": "fit", "contains": "padding"},
        "title": {
            "text": found[VERDICT].words, "subtitle": list(_lines(found)), "anchor": "start", "frame": "bounds",
            "fontSize": _TITLE, "subtitleFontSize": _TEXT, "subtitleLineHeight": _TEXT + 6, "subtitlePadding": 10,
        },
        "config": {
            **config, "padding": _MARGIN, "axis": {**config["axis"], **letters},
            "legend": {**config["legend"], **letters},
        },
    }  # fmt: skip


def _lines(found: Mapping[str, Finding]) -> Iterator[str]:
    """Return the lines below the title; long ones are wrapped."""
    yield from wrap(f"{found[RATE].words}; {found[GAIN].words}", _LINE)
    for one in (found[kind] for kind in CARD if kind in found and kind != FIRST):
        yield from wrap(f"{one.label}: {one.words}" if one.label else one.words, _LINE)
    yield CHART
