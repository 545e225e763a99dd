"""Search for words in an archive, also in packed files: Parquet columns, and the data inside reports."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_PACKED = re.compile(r'<script type="application/gzip"[^>]*>([A-Za-z0-9+/=]*)</script>')
_PROGRAM = re.compile(r"<(script|style)\b[^>]*>.*?</\1>", re.DOTALL)
_CLASS = re.compile(r'\sclass="[^"]*"')
_TEXTS = (".json", ".yaml", ".md", ".cff", ".csv", ".tex", ".txt")


def texts(file: Path) -> Iterator[str]:
    """Return the file's texts, unpacked; not the programs and styles inside a page or drawing."""
    if file.suffix == ".parquet":
        yield from _values(file)
    elif file.suffix == ".html":
        page = file.read_text(encoding="utf-8")
        yield _PROGRAM.sub("", page)
        for packed in _PACKED.findall(page):
            yield gzip.decompress(base64.b64decode(packed)).decode()
    elif file.suffix == ".svg":
        yield _CLASS.sub("", file.read_text(encoding="utf-8"))
    elif file.suffix in _TEXTS:
        yield file.read_text(encoding="utf-8")


def _values(file: Path) -> Iterator[str]:
    """Return every distinct text in the table, and its metadata."""
    table = pq.read_table(file)
    yield str(table.schema.metadata)
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            yield from filter(None, column.unique().to_pylist())


def find(words: Iterable[str], folder: Path, files: Iterable[str]) -> dict[str, list[str]]:
    """Return the files below `folder` that contain any of the words, as whole words; file -> words."""
    patterns = {word: re.compile(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])") for word in sorted(words)}
    found: dict[str, list[str]] = {}
    for name in files:
        contents = list(texts(folder / name))
        if hits := [word for word, pattern in patterns.items() if any(map(pattern.search, contents))]:
            found[name] = hits
    return found
