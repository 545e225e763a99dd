"""Which files describe the networks of a study."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def descriptions(own: Iterable[str | Path], archives: Iterable[str | Path]) -> list[Path]:
    """The file that describes each network: the study's own ones, and of unpacked `archives` those that it lacks."""
    files = {file.stem: file for file in map(Path, own)}
    for archive in archives:
        for file in sorted(Path(archive, "networks").glob("*.parquet")):
            files.setdefault(file.stem, file)
    return list(files.values())
