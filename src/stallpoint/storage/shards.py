"""Training sets whose files (shards) hold many samples each."""

from __future__ import annotations

import re
from pathlib import Path

from stallpoint.errors import InputError

_NUMBERED_NAME = re.compile(r"(.*)-(\d+)-of-(\d+)\..*")


def shards(path: Path, suffix: str) -> list[Path]:
    """Return the files of the folder that end with `suffix`, sorted.

    Raises `InputError` naming missing files if names are numbered (``train-00003-of-00008.parquet``).
    """
    found = sorted(file for file in path.iterdir() if file.name.endswith(suffix) and file.name[0] != ".")
    numbers_by_set: dict[tuple[str, int], set[int]] = {}
    for file in found:
        if match := _NUMBERED_NAME.fullmatch(file.name):
            numbers_by_set.setdefault((match[1], int(match[3])), set()).add(int(match[2]))
    for (name, size), numbers in numbers_by_set.items():
        # Most programs number shards from 0, some from 1.
        first = 1 if size in numbers else 0
        if missing := sorted(set(range(first, first + size)) - numbers):
            gaps = ", ".join(map(str, missing[:10]))
            raise InputError(f"{path}: of the {size} files {name}-*{suffix} there are {len(numbers)}; missing: {gaps}")
    return found
