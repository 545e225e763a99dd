"""Folders for the caches of other libraries on machines whose home folder is missing or not writable."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

CACHE_VARIABLES = {
    "XDG_CACHE_HOME": "",  # the cache folder of Snakemake and of programs that follow the XDG standard
    "MPLCONFIGDIR": "matplotlib",
    "NUMBA_CACHE_DIR": "numba",
    "TRITON_CACHE_DIR": "triton",
}
"""Environment variables that set folders of caches, each with the name of the subfolder used here."""


def keep_caches(folder: Path) -> None:
    """Put all caches below `folder` if the user's cache folder is not writable; variables already set are kept."""
    if any(map(_is_writable, _usual_folder())):
        return
    os.environ.pop("XDG_CACHE_HOME", None)
    for variable, name in CACHE_VARIABLES.items():
        os.environ.setdefault(variable, str(folder.absolute() / name))


def _usual_folder() -> list[Path]:
    """Return a list with the user's cache folder; an empty list if there is no home folder."""
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return [Path(folder)]
    try:
        return [Path.home() / ".cache"]
    except RuntimeError:  # HOME is not set, and the user is not in the system's list of users
        return []


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
