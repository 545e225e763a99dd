"""Which files describe the networks of a study, and what they say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from stallpoint.strategies.division import Cuts

if TYPE_CHECKING:
    import pandas as pd


def descriptions(own: Iterable[str | Path], archives: Iterable[str | Path]) -> list[Path]:
    """The file that describes each network: the study's own ones, and of unpacked `archives` those that it lacks."""
    files = {file.stem: file for file in map(Path, own)}
    for archive in archives:
        for file in sorted(Path(archive, "networks").glob("*.parquet")):
            files.setdefault(file.stem, file)
    return list(files.values())


def cuts_of(layers: pd.DataFrame) -> Cuts:
    """Where a network can be cut or split, of which these are rows of `tables.NETWORK_LAYERS`."""
    work = layers["multiply_adds"].fillna(0).astype(int)
    handed_on, outputs = (
        tuple(int(size) if size > 0 else None for size in layers[name].fillna(0)) for name in ("handed_on", "outputs")
    )
    return Cuts(tuple(work), handed_on, outputs)
