"""The page that holds the sections: template, style, scripts and packed data, all in one text."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from stallpoint.charts.web_page import libraries
from stallpoint.report.html import Section


def page(study: str, lead: str, sections: Sequence[Section], **data: object) -> str:
    """The whole page; `data` are what its scripts draw from, by name."""
    return Template(asset("page.html")).substitute(
        study=escape(study),
        lead=escape(lead),
        style=asset("page.css"),
        contents=" ".join(f'<a href="#{section.id}">{escape(section.title)}</a>' for section in sections),
        sections="\n".join(map(_html, sections)),
        libraries=libraries(),
        script=asset("page.js"),
        **{name: packed(value) for name, value in data.items()},
    )


def _html(section: Section) -> str:
    return f'<section id="{section.id}"><h2>{escape(section.title)}</h2>\n{section.html}\n</section>'


def asset(name: str) -> str:
    """Text of a file of this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def packed(value: object) -> str:
    """JSON, compressed (a large study's charts repeat themselves twentyfold) and as base64, free of any tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
