"""The report: a web page with the answers, the charts that support them, and the questions without an answer.

The page opens from disk without network access, as libraries, data and style are embedded. Texts come from sections;
charts, networks, machines and raw tables come from the study's tables.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from itertools import chain
from pathlib import Path
from string import Template
from types import MappingProxyType

from stallpoint.base.section import FILTERS, GROUPS, Absence, Section
from stallpoint.records.atomic import atomic
from stallpoint.report.charts import Tables, speedup_chart, theme
from stallpoint.report.charts.render import Spec, draw_or_note
from stallpoint.report.charts.web_page import libraries
from stallpoint.report.html import PagePart, cards, first_screen, part
from stallpoint.report.sections.data_section import environment, networks, raw_tables
from stallpoint.report.sections.why_section import evidence
from stallpoint.text import sort_key

SCRIPTS = ("state.js", "tables.js", "charts.js", "page.js")
FONT = f"Inter, {theme.FONT}"
"""Font of texts and charts; Inter is embedded, so that the layout is the same on every machine."""


def write_report(
    sections: Sequence[Section],
    tables: Tables,
    path: Path,
    *,
    study: str = "study",
    further_parts: Sequence[PagePart] = (),
    made_specs: Mapping[str, Spec] = MappingProxyType({}),
) -> None:
    """Write the page to `path`, completely or not at all.

    `tables` maps names to tables: model tables, ``network_layers``, and the tidy tables ``runs``, ``environments``,
    ``collectives``, ``contention`` and ``visits``. `study` is the study's name. `further_parts` are page parts from
    packages outside the core. `made_specs` are charts that were drawn earlier.
    """
    topics, charts, missing_charts = evidence(tables, made_specs)
    raw_part, rows = raw_tables(tables)
    leading, others = [one for one in sections if one.cards], [one for one in sections if not one.cards]
    answered_sections = [one for one in others if one.absence in (None, Absence.FAILED)]
    parts = [
        *(first_screen(one, others) for one in leading), *topics, *map(part, answered_sections), networks(tables),
        *further_parts, _unanswered_part([one for one in others if one not in answered_sections], missing_charts),
        environment(tables), raw_part,
    ]  # fmt: skip
    parts.sort(key=lambda one: GROUPS.index(one.group))
    verdicts = {name: spec for one in leading for name, spec in _card_charts(one, tables).items()}
    data = {
        "charts": {name: _store_by_column(chart) for name, chart in {**verdicts, **charts}.items()},
        "tables": {name: {**one, "rows": list(zip(*one["rows"], strict=True))} for name, one in rows.items()},
    }
    lead = f"Study {study}. In parentheses: 90 % confidence intervals."
    text = page(study, lead, filters(tables), parts, **data)
    with atomic(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def _card_charts(section: Section, tables: Tables) -> dict[str, Spec]:
    """Return the speedup chart of each card, keyed by the chart's name."""
    return {
        f"verdict-{place}": draw_or_note(partial(speedup_chart.draw_card, tables, found[0].about))
        for place, found in enumerate(cards(section).values())
    }


def _unanswered_part(unanswered_sections: Sequence[Section], missing_charts: Sequence[str]) -> PagePart:
    """Return the page part that lists unanswered questions and missing charts, each with the reason."""
    texts = [*(f"{one.title}: {one.text}" for one in unanswered_sections), *(f"{chart}." for chart in missing_charts)]
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    html = f"<ul>{items}</ul>" if items else "<p>Nothing: every question has an answer, and every chart is drawn.</p>"
    return PagePart("unanswered", "Not answered by this study", "Data", html)


def page(study: str, lead: str, filters: str, parts: Sequence[PagePart], **data: object) -> str:
    """Return the page as HTML; `data` has the inputs of the page's scripts by name."""
    inputs = {**data, "config": _configs()}
    texts = {"libraries": libraries(), **{name: _json(value) for name, value in inputs.items()}}
    return Template(_asset("page.html").decode()).substitute(
        study=escape(study),
        lead=escape(lead),
        font=base64.b64encode(_asset("inter.woff2")).decode(),
        colours=_colours(),
        style=_asset("page.css").decode(),
        menu="".join(_menu_group(name, parts) for name in GROUPS),
        filters=filters,
        sections="\n".join(_part_html(one, folds=one is not parts[0]) for one in parts),
        script="\n".join(_asset(name).decode() for name in SCRIPTS),
        data="\n".join(_packed_script(name, text) for name, text in texts.items()),
    )


def _menu_group(name: str, parts: Sequence[PagePart]) -> str:
    """Return a group of the menu as HTML; empty if the page has no part of the group."""
    links = [f'<a href="#{one.id}">{escape(one.title)}</a>' for one in parts if one.group == name]
    return f"<div><b>{escape(name)}</b>{''.join(links)}</div>" if links else ""


def filters(tables: Tables) -> str:
    """Return the form of filters: a group of check boxes for each filter with several values (see `_choices`)."""
    groups = "".join(_boxes(name, values) for name, values in _choices(tables).items() if len(values) > 1)
    return (
        f'<form id="filters" aria-label="Filters"{"" if groups else " hidden"}>{groups}'
        '<p><output id="shown"></output> <button type="button" id="reset">Show all</button></p></form>'
    )


def _choices(tables: Tables) -> dict[str, list[str]]:
    """Return each filter's values: those of scaling curves, or if there are no curves, those in all tables."""
    curves = tables.get("stalling")
    frames = tables.values() if curves is None or curves.empty else [curves]
    found = {
        name: {str(value) for frame in frames if name in frame for value in frame[name].dropna().unique()}
        for name in FILTERS
    }
    return {name: sorted(values - {""}, key=sort_key) for name, values in found.items()}


def _boxes(name: str, values: list[str]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" name="{name}" value="{escape(value)}"><span>{escape(value)}</span></label>'
        for value in values
    )
    return f"<fieldset><legend>{name}</legend>{boxes}</fieldset>"


def _part_html(one: PagePart, *, folds: bool) -> str:
    """Return a part as an HTML section; with `folds`, the page's script can fold the section on small screens."""
    heading = f"<h2>{escape(one.title)}</h2>"
    html = f"<details open><summary>{heading}</summary>\n{one.html}\n</details>" if folds else f"{heading}\n{one.html}"
    return f'<section id="{one.id}">{html}</section>'


def _asset(name: str) -> bytes:
    return files("stallpoint.report.sections").joinpath("assets", name).read_bytes()


def _colours() -> str:
    """Return the colours of charts and page as CSS variables; printed pages always use the light theme."""
    light, dark = _variables(theme.LIGHT_THEME), _variables(theme.DARK_THEME)
    return f":root {{ {light} }}\n@media screen {{ :root[data-theme=dark] {{ {dark} }} }}"


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def _configs() -> dict[str, object]:
    """Return the Vega-Lite configurations of charts: on the page (colours are CSS variables), and when saved."""
    variables = {name: f"var(--{name})" for name in theme.LIGHT_THEME}
    return {
        "page": theme.config({**variables, "page": "transparent", "paper": variables["page"]}, font=FONT),
        "paper": theme.config(font=FONT),
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _packed_script(name: str, text: str) -> str:
    """Return a script element that holds the text, compressed and in base64 so that it contains no tag."""
    packed_text = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'<script type="application/gzip" id="{name}">{packed_text}</script>'


def _store_by_column(chart: Spec) -> Spec:
    """Return a chart whose data are stored by column, which compresses to half the size of rows."""
    datasets = {
        key: {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}
        for key, rows in chart["datasets"].items()
    }
    return {**chart, "datasets": datasets}
