"""Networks that sleep where a test plants it, trained in turns by real workers, and the tidy tables of that.

They sleep by `virtual_time.sleep`: iterations take minutes by the clocks of the workers, and next to nothing by ours.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from launching import VISITING, copied
from visiting_cells import agenda

from stallpoint.networks.described import cuts_of
from stallpoint.networks.description import describe
from stallpoint.networks.own import own_network
from stallpoint.records import disturbances
from stallpoint.records.parquet import read, write
from stallpoint.records.tables import NETWORK_LAYERS, TIDY_TABLES
from stallpoint.schedule.ledger import RECORD, Measurement, round_folder
from stallpoint.schedule.processes import LOCAL_LAUNCHER
from stallpoint.schedule.session import measure_cells
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic
from stallpoint.strategies.division import Cuts
from stallpoint.study.cells import Cell
from stallpoint.study.collect import collect


def measured(cells: Sequence[Cell], place: Path, planted: str, *, samples: int) -> dict[str, pd.DataFrame]:
    """All tidy tables of `cells`, whose networks are in the source `planted` of ``planted.py``, from so many images."""
    (place / "planted.py").write_text(planted)
    write_synthetic(Storage("local", place / "images", "files"), samples, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for name, value in {**VISITING, **copied(), "VIRTUAL_TIME": "1"}.items():
            patch.setenv(name, value)
        patch.setattr(disturbances, "MIN_SLOWDOWN", math.inf)  # where no time is real, a slow machine is none
        measure_cells(agenda(list(cells), place / "visits"), launcher=LOCAL_LAUNCHER, log=place / "turns.log")
    folders = [Measurement(one, round_folder(one, place / "visits" / one.path, again=False)).folder for one in cells]
    found = {}
    for table in TIDY_TABLES:
        file = place / f"{table.name}.parquet"
        collect(table, [folder / RECORD for folder in folders], file)
        found[table.name] = read(table, file).to_pandas()
    return found


def cuts_of_planted(network: str, own: Mapping[str, Any], place: Path) -> Cuts:
    """How that `network` of ``planted.py``, whose entry is `own`, can be divided, through the record that says so."""
    file = place / f"{network}.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        write(NETWORK_LAYERS, describe(own_network(network, own)), file)
    return cuts_of(read(NETWORK_LAYERS, file).to_pandas())


def near(interval: Iterable[float], seconds: float) -> bool:
    """Whether an interval is about those `seconds`, beside which nothing counts that really takes time."""
    low, high = interval
    return 0.75 * seconds < low <= high < 1.25 * seconds
