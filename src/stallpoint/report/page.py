"""The page that holds the sections: template, style, scripts and packed data, all in one text."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

import vl_convert as vlc

from stallpoint.charts.render import VEGA_LITE
from stallpoint.report.html import Section

LIBRARIES = "window.vegaEmbed = vegaEmbed;"
"""What the embedded libraries give to the page."""


def page(study: str, lead: str, sections: Sequence[Section], **data: object) -> str:
    """The whole page; `data` are what its scripts draw from, by name."""
    return Template(asset("page.html")).substitute(
        study=escape(study),
        lead=escape(lead),
        style=asset("page.css"),
        contents=" ".join(f'<a href="#{section.id}">{escape(section.title)}</a>' for section in sections),
        sections="\n".join(map(_html, sections)),
        libraries=_libraries(),
        script=asset("page.js"),
        **{name: packed(value) for name, value in data.items()},
    )


def _html(section: Section) -> str:
    return f'<section id="{section.id}"><h2>{escape(section.title)}</h2>\n{section.html}\n</section>'


def asset(name: str) -> str:
    """Text of a file of this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _libraries() -> str:
    """Vega-Embed with all it needs, as one script."""
    bundle: str = vlc.javascript_bundle(LIBRARIES, VEGA_LITE)
    return bundle.replace("</script", "<\\/script")


def packed(value: object) -> str:
    """JSON, compressed (a large study's charts repeat themselves twentyfold) and as base64, free of any tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
