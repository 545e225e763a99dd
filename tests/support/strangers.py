"""Inputs as strangers bring them, each with its form's source and the right answer (`data/strangers`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "data" / "strangers"
KINDS = {
    "tables": "tables of rates and times",
    "sentences": "lines and sentences",
    "logs": "training logs",
    "collectives": "collectives and links",
    "unread": "recognised, not read",
}


@dataclass(frozen=True)
class Stranger:
    """One input."""

    kind: str
    """A name of `KINDS`."""
    form: str
    source: str
    """Repository and path, or thread, where the form was seen; ``written for this test`` for others."""
    by: str
    """Who or what says that the answer is right."""
    right: Sequence[Mapping[str, Any]]
    files: Mapping[str, bytes] = field(repr=False)
    published: bool = False
    """Whether the numbers are those that the source printed."""

    def written(self, folder: Path) -> list[str]:
        """Write the files and return their names."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return [str(folder / name) for name in self.files]


def _stranger(kind: str, entry: Mapping[str, Any]) -> Stranger:
    files = {name: text.encode() for name, text in entry.get("files", {}).items()}
    if "text" in entry:
        files[entry.get("name", "input.txt")] = entry["text"].encode()
    if "bytes" in entry:
        files[entry["name"]] = bytes.fromhex(entry["bytes"])
    published = entry.get("numbers") == "published"
    return Stranger(kind, entry["form"], entry["source"], entry["by"], entry["right"], files, published)


STRANGERS = [
    _stranger(kind, entry)
    for kind in KINDS
    for entry in yaml.safe_load((FOLDER / f"{kind}.yaml").read_text(encoding="utf-8"))
]
