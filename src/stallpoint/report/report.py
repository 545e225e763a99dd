"""The report: one web page with the answer, the charts in the order of the argument, and what was not measured.

The page opens from disk without network: libraries, data and style are in it. Each group of its menu has a module of
sections, of which `write_report` lists the order.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.records.atomic import atomic
from stallpoint.report.charts import Tables, theme
from stallpoint.report.charts.labels import FILTERS
from stallpoint.report.charts.web_page import libraries
from stallpoint.report.html import Section
from stallpoint.report.sections.answer_section import answer, curves, remedies, targets
from stallpoint.report.sections.data_section import environment, networks, not_measured, raw_tables
from stallpoint.report.sections.papers_section import claims_section, papers_section
from stallpoint.report.sections.sure_section import sure, timing, validation
from stallpoint.report.sections.why_section import evidence, intervened, storages
from stallpoint.study.study import Excluded
from stallpoint.text import natural

SCRIPTS = ("state.js", "tables.js", "charts.js", "page.js")
FONT = f"Inter, {theme.FONT}"
"""The embedded font, in texts and charts alike, so that the layout is the same on every machine."""


def write_report(
    conclusions: Conclusions,
    tables: Tables,
    path: Path,
    *,
    study: str = "study",
    excluded: Sequence[Excluded] = (),
    papers: Sequence[Path] = (),
) -> None:
    """Write the page to `path`, whole or not at all.

    `conclusions` is from `conclude.conclude`; `tables` are by name the model tables, the tidy tables
    ``runs``, ``environments``, ``collectives``, ``contention`` and ``visits``, and ``network_layers`` and
    ``published``; `study` is its name and `excluded` what it does not run, `papers` are folders of the papers'
    exhibits, below that of `path`.
    """
    first, verdicts = answer(conclusions, tables)
    topics, charts = evidence(tables)
    last, rows = raw_tables(tables)
    sections = [
        first,
        *targets(conclusions, tables),
        remedies(conclusions),
        sure(conclusions),
        *([claims_section(conclusions["claims"])] if conclusions["claims"] else []),
        *topics,
        *storages(conclusions),
        curves(conclusions),
        intervened(conclusions),
        validation(tables),
        networks(tables),
        papers_section(papers, path.parent),
        timing(conclusions["instrumentation"]),
        not_measured(conclusions, excluded),
        environment(tables),
        last,
    ]
    data = {"charts": {**verdicts, **charts}, "tables": rows}
    text = page(study, _lead(study, conclusions), filters(tables), sections, **data)
    with atomic(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def _lead(study: str, conclusions: Conclusions) -> str:
    covered, threshold = 100 * conclusions["interval"], 100 * conclusions["threshold"]
    return (
        f"Study {study}. In parentheses: {covered:.0f} % confidence intervals. Training stalls where doubling the "
        f"workers gains less than {threshold:.0f} % in throughput."
    )


def page(study: str, lead: str, filters: str, sections: Sequence[Section], **data: object) -> str:
    """Return the page; `data` are the inputs of its scripts, by name."""
    return Template(_asset("page.html").decode()).substitute(
        study=escape(study),
        lead=escape(lead),
        font=base64.b64encode(_asset("inter.woff2")).decode(),
        colours=_colours(),
        style=_asset("page.css").decode(),
        menu="".join(_group(name, sections) for name in GROUPS),
        filters=filters,
        sections="\n".join(map(_html, sections)),
        libraries=libraries(),
        script="\n".join(_asset(name).decode() for name in SCRIPTS),
        data="\n".join(_data(name, value) for name, value in {**data, "config": _configs()}.items()),
    )


GROUPS = {
    "Answer": ("answer", "targets", "remedies", "curves"),
    "Why": (
        "topic-where-scaling-stalls", "topic-communication-of-gradients", "topic-compute", "topic-training-data",
        "topic-training-to-a-target", "storages", "interventions",
    ),
    "How sure": (
        "sure", "topic-accuracy-of-the-dag-model", "validation-table", "topic-scaling-laws",
        "topic-how-it-was-measured", "timing", "not-drawn",
    ),
    "Papers": ("claims", "papers"),
    "Data": ("networks", "cells", "environment", "raw-tables"),
}  # fmt: skip
"""Groups of the menu: sections by their anchors."""


def _group(name: str, sections: Sequence[Section]) -> str:
    """Return a group of the menu; empty where the page has none of its sections."""
    links = [f'<a href="#{one.id}">{escape(one.title)}</a>' for one in sections if one.id in GROUPS[name]]
    return f"<div><b>{escape(name)}</b>{''.join(links)}</div>" if links else ""


def filters(tables: Tables) -> str:
    """Return a group of boxes for each axis that takes several values in any table."""
    groups = "".join(_boxes(name, values) for name, values in _choices(tables).items() if len(values) > 1)
    return (
        f'<form id="filters" aria-label="Filters"{"" if groups else " hidden"}>{groups}'
        '<p><output id="shown"></output> <button type="button" id="reset">Show all</button></p></form>'
    )


def _choices(tables: Tables) -> dict[str, list[str]]:
    """Return the values of each axis in any table."""
    found = {
        name: {str(value) for frame in tables.values() if name in frame for value in frame[name].dropna().unique()}
        for name in FILTERS
    }
    return {name: sorted(values - {""}, key=natural) for name, values in found.items()}


def _boxes(name: str, values: list[str]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" name="{name}" value="{escape(value)}"><span>{escape(value)}</span></label>'
        for value in values
    )
    return f"<fieldset><legend>{name}</legend>{boxes}</fieldset>"


def _html(section: Section) -> str:
    return f'<section id="{section.id}"><h2>{escape(section.title)}</h2>\n{section.html}\n</section>'


def _asset(name: str) -> bytes:
    return files("stallpoint.report.sections").joinpath("assets", name).read_bytes()


def _colours() -> str:
    """Return the colours of the charts as variables, which the style of the page uses too; printed pages are light."""
    light, dark = _variables(theme.LIGHT), _variables(theme.DARK)
    return f":root {{ {light} }}\n@media screen {{ :root[data-theme=dark] {{ {dark} }} }}"


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def _configs() -> dict[str, object]:
    """Return how charts look on the page, whose colours are variables, and in a file."""
    variables = {name: f"var(--{name})" for name in theme.LIGHT}
    return {
        "page": theme.config({**variables, "page": "transparent", "paper": variables["page"]}, font=FONT),
        "paper": theme.config(font=FONT),
    }


def _data(name: str, value: object) -> str:
    """Return JSON, compressed (a large study's charts repeat themselves twentyfold) and as base64, free of any tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'<script type="application/gzip" id="{name}">{packed}</script>'
