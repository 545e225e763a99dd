"""Text of others inside pages of Markdown."""

from __future__ import annotations

import re

_MARKS = re.compile(r"[\\`*|]|(?<=\])\(|(?<!\w)_|_(?!\w)")
"""What starts code, emphasis, a cell, or the target of a link; ``_`` inside a word is none of these."""
_HTML = re.compile(r"<(?=[A-Za-z/!?])|&(?=[#\w]+;)")


def plain(text: str) -> str:
    """`text` on one line, as Markdown shows it, whatever its characters mean to Markdown or HTML."""
    marked = _MARKS.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))
    return _HTML.sub(lambda found: {"<": "&lt;", "&": "&amp;"}[found[0]], marked)
