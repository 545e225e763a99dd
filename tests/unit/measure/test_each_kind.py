"""Each kind of job is measured once, on one rank and the smallest cell: what follows is in the kinds' own tests."""

from dataclasses import asdict, replace
from pathlib import Path

import little
import pytest
from visiting_cells import COMMON, collectives, sgemm, train

from stallpoint.measure import constants, job
from stallpoint.measure.jobs import copies
from stallpoint.measure.machine.caches import Caches
from stallpoint.records.parquet import read
from stallpoint.records.tables import RUNS
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import KINDS, MEASURED, kind_of
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.convergence_kind import ConvergenceCell
from stallpoint.study.kinds.copies_kind import CopiesCell
from stallpoint.study.kinds.intervention_kind import InterventionCell
from stallpoint.study.kinds.storage_kind import StorageCell
from stallpoint.study.recipes import RECIPES, to_values

OWN = {"build": "nets.py:build", "image_size": 8}
TRAIN = replace(train(network="small", visits=1), own_network=OWN)
VALUES = asdict(TRAIN)
PLACE = {"storage": "local", "storage_path": "images", "storage_format": "files"}
CELLS: dict[str, Cell] = {
    "train": TRAIN,
    "command": CommandCell(
        **VALUES, run="echo 100 images/s", launch="workers", rate=r"(?P<rate>\d+) images/s", max_minutes=1.0
    ),
    "intervention": InterventionCell(**VALUES, intervention="no-update"),
    "sgemm": replace(sgemm("small", visits=1), own_network=OWN),
    "collectives": collectives(1, visits=1),
    "storage": StorageCell(**COMMON, visits=1, **PLACE, samples=2),
    "copies": CopiesCell(**COMMON, visits=1, samples=1),
    "convergence": ConvergenceCell(
        **COMMON, **PLACE, network="small", batch=2, sync="wfbp", recipe="sgd", trial=1, prefetch=0, readers=1,
        validation_storage="local", validation_path="images", validation_format="files", validation_share=0.5,
        preset=TRAIN.preset, settings=to_values(RECIPES["sgd"].recipe), own_network=OWN, target=None, max_epochs=1.0,
        evaluation_epochs=1.0, patience=None, max_minutes=None, noise_steps=None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED)
def test_a_cell_is_measured_and_has_rows_in_each_table(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(little.NETWORK)
    write_synthetic(Storage("local", tmp_path / "images", "files"), 8, seed=1)
    for constant, value in {**little.CONSTANTS, **little.QUICK}.items():
        monkeypatch.setattr(constants, constant, value)
    monkeypatch.setattr(copies, "caches", lambda _: Caches(core=None, largest=2**22))
    cell = CELLS[name]
    folder = tmp_path / cell.path
    job.run(cell, kind_of(cell).measure(), folder)
    (run,) = read(RUNS, folder / "runs.parquet").to_pylist()
    assert (run["status"], run["reason"]) == ("ok", "")
    for table in KINDS[name].records:
        assert table in KINDS[name].optional_tables or read(table, folder / f"{table.name}.parquet").num_rows, table
