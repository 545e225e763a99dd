"""A web page of its own that opens from disk: headings, tables and charts, with the libraries that draw them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from string import Template

from stallpoint.report.charts import theme
from stallpoint.report.charts.render import Spec
from stallpoint.report.charts.web_page import libraries

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
    """Return a page of pieces of HTML and charts (Vega-Lite), which its script draws."""
    specs: dict[str, Spec] = {}
    elements = []
    config = theme.config()
    config["legend"] |= {"columns": 3}
    for part in parts:
        if isinstance(part, str):
            elements.append(part)
            continue
        name = f"chart-{len(specs)}"
        specs[name] = {**part, "config": config}
        elements.append(f'<div id="{name}"></div>')
    # A script element must not contain a tag, even inside a text.
    text = json.dumps(specs).replace("<", "\\u003c")
    return _PAGE.substitute(
        theme.LIGHT, title=escape(title), font=theme.FONT, libraries=libraries(), parts="\n".join(elements), specs=text
    )


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts."""
    first, *others = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in (head, *rows))
    body = "".join(f"<tr>{row}</tr>" for row in others)
    return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>'
