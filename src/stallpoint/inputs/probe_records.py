"""Finds the records of a probe from a path that the user names."""

from __future__ import annotations

from pathlib import Path

from stallpoint.records.tables import PROBES

_ABOVE = 3
"""Folders between a file of a probe and the folder of all ranks: a start, a rank."""


def folder_of(path: Path) -> Path | None:
    """Return the folder with the records of all ranks that is `path` or contains it; None for others."""
    for folder in [path, *path.absolute().parents[:_ABOVE]]:
        if folder.is_dir() and any(folder.glob(f"rank~*/*/{PROBES.name}.parquet")):
            return folder
    return None
