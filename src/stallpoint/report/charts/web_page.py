"""A chart as a web page of its own that opens from disk without network, and its libraries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import Template
from typing import Any

import altair as alt

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""Version of Vega-Lite that Altair writes, as vl-convert names it."""
_GIVEN = "window.vegaEmbed = vegaEmbed;"
"""Names that the libraries give to a page."""
_KEPT = Path(__file__).parent / "__pycache__"
"""Cache of the joined libraries."""

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>$title</title>
<style>.vega-embed { display: flex; width: 100%; }</style>
<script>$libraries</script>
</head>
<body>
<div id="chart"></div>
<script>vegaEmbed("#chart", $spec, {renderer: "svg"}).catch(console.error);</script>
</body>
</html>
""")


def page(spec: Mapping[str, Any], title: str) -> str:
    """Return the page of a chart in Vega-Lite."""
    # A script element must not contain a tag, even inside a text.
    text = json.dumps(spec).replace("<", "\\u003c")
    return _PAGE.substitute(title=escape(title), libraries=libraries(), spec=text)


def empty_page(title: str, missing: str) -> str:
    """Return the page of an empty chart: its contents, and the missing cells of the study."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}</title></head>\n'
        f"<body><h1>{escape(title)}</h1><p>Nothing to draw: {escape(missing)}.</p></body>\n</html>\n"
    )


@cache
def libraries() -> str:
    """Return Vega-Embed with all it needs, as one script.

    Joining it takes longer than drawing a chart, so it is cached by version with Python's own compiled files, where
    that is writable. Raises `InputError` where the package that has them is missing.
    """
    try:
        kept = _KEPT / f"vega-embed-{VEGA_LITE}-{version('vl-convert-python')}.js"
    except PackageNotFoundError:
        raise InputError("a page with charts needs vl-convert-python: pip install 'stallpoint[report]'") from None
    with suppress(OSError):
        return kept.read_text(encoding="utf-8")
    import vl_convert as vlc

    made: str = vlc.javascript_bundle(_GIVEN, VEGA_LITE).replace("</script", "<\\/script")
    with suppress(OSError, InputError), atomic(kept) as scratch:
        scratch.write_text(made, encoding="utf-8")
    return made
