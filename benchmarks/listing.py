"""Looking through a folder of a million small files, and opening it afterwards from its index."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from paired import Figure, Timing

from stallpoint.storage import Storage
from stallpoint.storage.samples import existing_index

NAME = "listing"
FOLDERS, FILES = 1000, 1000


def benchmark(scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    """Seconds of each, once: the folder is made for it, and its metadata is in memory."""
    folder = scratch / "million"
    for number in range(FOLDERS):
        place = folder / f"class{number:04d}"
        place.mkdir(parents=True)
        for file in range(FILES):
            (place / f"sample{file:04d}.jpg").touch()
    storage = Storage("million", folder, "files")
    looking = _seconds(lambda: storage.kind.index(folder))
    opening = _seconds(storage.open)
    index = existing_index(folder)
    size = index.stat().st_size if index else 0
    figures = [Figure(NAME, "looking through", "s", looking, looking, looking),
               Figure(NAME, "opening by the index", "s", opening, opening, opening)]  # fmt: skip
    return [*figures], [
        f"{NAME}: {FOLDERS * FILES:,} files in {FOLDERS} folders: indexed in {looking:.1f} s, opened by "
        f"the index ({size / 1e6:.1f} MB) in {opening:.2f} s"
    ]


def _seconds(step: Callable[[], object]) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin
