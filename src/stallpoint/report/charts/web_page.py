"""Web pages that open from disk without network: headings, tables and charts, with the libraries that draw charts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from html import escape
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Any

import altair as alt

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.report.charts import journal, theme

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""Version of Vega-Lite in Altair's charts, in the form of vl-convert."""
_EXPORT_SCRIPT = "window.vegaEmbed = vegaEmbed;"
"""Script that makes the libraries known to the page by a global name."""
_CACHE_FOLDER = Path(__file__).parent / "__pycache__"
"""Folder in which the joined libraries are cached."""

_PAGE_TEMPLATE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { max-width: 68rem; margin: 2rem auto; padding: 0 1rem; font: 15px/1.5 $font; color: $ink; background: $page; }
p, li { max-width: 60rem; }
table { border-collapse: collapse; font-size: .9em; }
td { padding: .15rem .8rem .15rem 0; border-bottom: 1px solid $grid; }
th { padding: .15rem .8rem .15rem 0; border-bottom: 1px solid $grid; text-align: left; font-weight: normal; }
th, .soft { color: $soft; }
.wide, .vega-embed > .chart-wrapper { overflow-x: auto; }
.vega-embed { max-width: 100%; }
</style>
<script>$libraries</script>
</head>
<body>
<main>
<h1>$title</h1>
$parts
</main>
<script>
for (const [id, spec] of Object.entries($specs)) {
  const place = document.getElementById(id), closed = place.closest("details:not([open])");
  // What scrolls is the chart, not its menu, which would be cut off.
  const named = () => {
    place.querySelector("summary").setAttribute("aria-label", "Save this chart");
    place.querySelector(".chart-wrapper").tabIndex = 0;
  };
  const options = {renderer: "svg", actions: {export: true, source: false, compiled: false, editor: false}};
  const draw = () => vegaEmbed(place, spec, options).then(named).catch(console.error);
  if (closed) closed.addEventListener("toggle", draw, {once: true}); else draw();
}
</script>
</body>
</html>
""")


def page(title: str, parts: Iterable[str | Mapping[str, Any]], *, legend_columns: int = 3) -> str:
    """Return a page of `parts`: pieces of HTML, and charts (Vega-Lite) that the page's script draws. Readers without
    scripts see the charts as SVG. A page without charts contains no libraries.

    Legends have `legend_columns` columns. If it is 0, all entries are in one row.
    """
    specs: dict[str, Mapping[str, Any]] = {}
    elements = []
    config = theme.config()
    config["legend"] |= {"columns": legend_columns}
    for part in parts:
        if isinstance(part, str):
            elements.append(part)
            continue
        name = f"chart-{len(specs)}"
        # The description becomes the picture's alternative text.
        specs[name] = {"description": part.get("title", title), **part, "config": config}
        caption = escape(specs[name]["description"])
        image = f'<div class="wide" tabindex="0" role="img" aria-label="{caption}">{_svg(specs[name], name)}</div>'
        elements.append(f'<div id="{name}"><noscript>{image}</noscript></div>')
    # A script element must not contain a tag, even inside a text.
    text = json.dumps(specs).replace("<", "\\u003c")
    return _PAGE_TEMPLATE.substitute(
        theme.LIGHT_THEME, title=escape(title), font=theme.FONT, libraries=libraries() if specs else "",
        parts="\n".join(elements), specs=text,
    )  # fmt: skip


def _svg(spec: Mapping[str, Any], name: str) -> str:
    """Return the chart as SVG; `name` distinguishes its parts from those of other charts on the page."""
    import vl_convert as vlc

    return journal.number_ids(vlc.vegalite_to_svg(dict(spec), VEGA_LITE), f"{name}-")


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts as HTML. Readers can scroll it by keyboard."""
    heading = "".join(f'<th scope="col">{escape(text)}</th>' if text else "<td></td>" for text in head)
    rows_html = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{heading}</tr></thead><tbody>{rows_html}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>'


@cache
def libraries() -> str:
    """Return Vega-Embed and its dependencies as one script.

    Joining takes longer than drawing a chart. The script is therefore cached, by version, beside Python's compiled
    files, if their folder is writable.
    """
    script_file = _CACHE_FOLDER / f"vega-embed-{VEGA_LITE}-{version('vl-convert-python')}.js"
    with suppress(OSError):
        return script_file.read_text(encoding="utf-8")
    import vl_convert as vlc

    script: str = vlc.javascript_bundle(_EXPORT_SCRIPT, VEGA_LITE).replace("</script", "<\\/script")
    with suppress(OSError, InputError), atomic(script_file) as scratch:
        scratch.write_text(script, encoding="utf-8")
    return script
