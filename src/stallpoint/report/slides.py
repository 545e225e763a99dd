"""Slides: a picture of each card of the report. A card is about one network on one hardware."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap

import vl_convert as vlc

from stallpoint.base.section import Finding, Section
from stallpoint.records.atomic import atomic
from stallpoint.report.charts import Tables, speedup_chart, theme
from stallpoint.report.charts.render import Spec, to_spec
from stallpoint.report.charts.web_page import VEGA_LITE
from stallpoint.report.html import cards

WIDTH, HEIGHT = 1280, 720
"""Size of a slide, pixels."""
_SLIDE_MARGIN = 40
_TITLE, _TEXT = 34, 19
"""Font sizes of title and text, pixels."""
CHART = "chart: solid: measured; dashed: predicted, with 90 % intervals; grey: ideal"
_MAX_LINE_LENGTH = 118
"""Maximum length of a line of text, characters."""


def write_slides(sections: Sequence[Section], tables: Tables, folder: Path) -> None:
    """Write each card to ``<hardware>/<network>.png``, or to ``<network>-<B>.png`` if it is about one batch size B."""
    folder.mkdir(parents=True, exist_ok=True)
    for title, found in (card for section in sections if section.cards for card in cards(section).items()):
        about = found[0].about
        picture = vlc.vegalite_to_png(slide(title, found[0], tables), vl_version=VEGA_LITE)
        (folder / about["hardware"]).mkdir(exist_ok=True)
        batch = f"-{about['batch']}" if "batch" in about else ""
        with atomic(folder / about["hardware"] / f"{about['network']}{batch}.png") as scratch:
            scratch.write_bytes(picture)


def slide(title: str, finding: Finding, tables: Tables) -> Spec:
    """Return a slide as a Vega-Lite spec: the text of a finding above the chart of speedup over workers."""
    chart = to_spec(speedup_chart.draw_card(tables, finding.about))
    config = theme.config()
    font_sizes = {"labelFontSize": _TEXT - 3, "titleFontSize": _TEXT - 2}
    return {
        **chart,
        "width": WIDTH,
        "height": HEIGHT,
        "autosize": {"type": "fit", "contains": "padding"},
        "title": {
            "text": f"{title}: {finding.words}", "subtitle": list(_lines(finding)),
            "anchor": "start", "frame": "bounds",
            "fontSize": _TITLE, "subtitleFontSize": _TEXT, "subtitleLineHeight": _TEXT + 6, "subtitlePadding": 10,
        },
        "config": {
            **config, "padding": _SLIDE_MARGIN, "axis": {**config["axis"], **font_sizes},
            "legend": {**config["legend"], **font_sizes},
        },
    }  # fmt: skip


def _lines(finding: Finding) -> Iterator[str]:
    """Yield the text lines below the slide's title, wrapped to `_MAX_LINE_LENGTH` characters."""
    for label, text in finding.parts:
        yield from wrap(text if label in ("note", "fits") else f"{label}: {text}", _MAX_LINE_LENGTH)
    yield from wrap(finding.evidence, _MAX_LINE_LENGTH)
    yield CHART
