"""A picture for each network on each hardware entry: the answer's card as a slide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap

import vl_convert as vlc

from stallpoint.findings.conclusions.answers import Answer
from stallpoint.findings.conclusions.conclusion_words import (
    batch_in_words,
    beyond_in_words,
    cause_in_words,
    gain_in_words,
    helps_in_words,
    likely_in_words,
    machine_in_words,
    sentence,
    throughput_in_words,
    trust_in_words,
)
from stallpoint.findings.conclusions.numbers import Conclusions
from stallpoint.records.atomic import atomic
from stallpoint.report.charts import Tables, theme, verdict_chart
from stallpoint.report.charts.render import Spec, to_spec
from stallpoint.report.charts.web_page import VEGA_LITE
from stallpoint.report.sections.answer_section import places

WIDTH, HEIGHT = 1280, 720
"""Of a slide, pixels."""
_MARGIN = 40
_TITLE, _TEXT = 34, 19
"""Heights of letters, pixels."""
_LINE = 118
"""Characters of a line of text."""


def write_slides(conclusions: Conclusions, tables: Tables, folder: Path) -> None:
    """Write ``<hardware>/<network>.png`` for each card of the report."""
    folder.mkdir(parents=True, exist_ok=True)
    for (network, hardware), answers in places(conclusions["answers"]).items():
        picture = vlc.vegalite_to_png(slide(answers[0], conclusions, tables), vl_version=VEGA_LITE)
        (folder / hardware).mkdir(exist_ok=True)
        with atomic(folder / hardware / f"{network}.png") as scratch:
            scratch.write_bytes(picture)


def slide(answer: Answer, conclusions: Conclusions, tables: Tables) -> Spec:
    """The slide of one answer as a Vega-Lite spec: what the card says, and the speedup over workers."""
    lines = list(_lines(answer, conclusions))
    chart = to_spec(verdict_chart.draw(tables, answer["network"], answer["hardware"]))
    config = theme.config()
    letters = {"labelFontSize": _TEXT - 3, "titleFontSize": _TEXT - 2}
    return {
        **chart,
        "width": WIDTH,
        "height": HEIGHT,
        "autosize": {"type": "fit", "contains": "padding"},
        "title": {
            "text": sentence(answer, conclusions["machines"]), "subtitle": lines, "anchor": "start", "frame": "bounds",
            "fontSize": _TITLE, "subtitleFontSize": _TEXT, "subtitleLineHeight": _TEXT + 6, "subtitlePadding": 10,
        },
        "config": {
            **config, "padding": _MARGIN, "axis": {**config["axis"], **letters},
            "legend": {**config["legend"], **letters},
        },
    }  # fmt: skip


def _lines(answer: Answer, conclusions: Conclusions) -> Iterator[str]:
    """What stands below the title, a line each; long ones go on in the next."""
    machines: Sequence[dict[str, object]] = conclusions["machines"]
    where, beyond = beyond_in_words(answer, machines)
    on = next((machine_in_words(one) for one in machines if one["hardware"] == answer["hardware"]), "")
    named = {
        "": f"{throughput_in_words(answer)}; {gain_in_words(answer)}",
        "most likely": likely_in_words(answer),
        "largest loss": "" if answer["why_withheld"] else cause_in_words(answer),
        where: beyond,
        "would help": helps_in_words(answer),
        "curve": f"{answer['scaling']} scaling, {batch_in_words(answer)}, {answer['sync']}, {answer['storage']}",
        "measured on": f"{answer['hardware']}: {on}" if on else "",
        "trust": trust_in_words(answer, conclusions),
        "chart": "solid: measured; dashed: predicted, with 90 % intervals; grey: ideal",
    }
    for name, text in named.items():
        if text:
            yield from wrap(f"{name}: {text}" if name else text, _LINE)
