"""Folders for caches of other libraries on a machine whose home folder is missing or not writable."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

CACHES = {
    "XDG_CACHE_HOME": "",  # Snakemake's copies of sources, and programs that follow the standard
    "MPLCONFIGDIR": "matplotlib",
    "NUMBA_CACHE_DIR": "numba",
    "TRITON_CACHE_DIR": "triton",
}
"""Variables that set the folders of caches, each with its subfolder."""


def keep_caches(folder: Path) -> None:
    """Put caches below `folder` if the user's cache folder is not writable; variables that are already set stay."""
    if any(map(_writable, _usual())):
        return
    os.environ.pop("XDG_CACHE_HOME", None)
    for variable, name in CACHES.items():
        os.environ.setdefault(variable, str(folder.absolute() / name))


def _usual() -> list[Path]:
    """Return the usual folder of caches; empty if there is no home."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return [Path(given)]
    try:
        return [Path.home() / ".cache"]
    except RuntimeError:  # there is neither HOME nor an entry in the list of users
        return []


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
