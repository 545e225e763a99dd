"""Several cells in one job (benchmarks/in_turns.py), each on as many of its ranks as it has: real jobs under mpirun."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from launching import ENVIRONMENT, MPIRUN

from stallpoint.cells import CollectivesCell

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "in_turns.py"


def a_cell(nodes: int, backend: str, reduction: str = "library") -> CollectivesCell:
    return CollectivesCell(
        hardware="cpu", nodes=nodes, repeat=1, workers_per_node=1, device="cpu", threads_per_worker=1, seed=0,
        precision="float32", anonymise=True, backend=backend, reduction=reduction, message_bytes=[1024], samples=1,
    )  # fmt: skip


def in_turns(cells: list[CollectivesCell], raw: Path, *, ranks: int) -> tuple[int, str]:
    listed = raw.parent / "cells.json"
    listed.write_text(json.dumps([cell.to_json() for cell in cells]))
    job = subprocess.run(
        [*MPIRUN, "-n", str(ranks), sys.executable, str(PROGRAM), str(raw), str(listed)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    return job.returncode, job.stdout + job.stderr


def test_each_cell_has_its_own_ranks_and_is_measured_once(tmp_path: Path) -> None:
    cells = [a_cell(3, "mpi"), a_cell(2, "torch"), a_cell(2, "mpi", "parameter-server"), a_cell(3, "torch")]
    code, output = in_turns(cells, tmp_path / "raw", ranks=3)
    assert code == 0, output
    for cell in cells:
        rows = pd.read_parquet(tmp_path / "raw" / cell.path / "collectives.parquet")
        assert set(rows["ranks"]) == {cell.ranks}
        assert set(rows["rank"]) == set(range(cell.ranks))
        assert (rows["reduction"] == cell.reduction).all()

    again = a_cell(2, "mpi")
    code, output = in_turns([*cells, again], tmp_path / "raw", ranks=3)
    assert code == 0, output
    assert [line.split()[-1] for line in output.splitlines() if " s  " in line] == [again.path]


@pytest.mark.parametrize("schemes", [("library", "ring"), ("ring", "library"), ("ring", "binary-tree")])
def test_no_cell_is_reduced_by_a_scheme_that_mpi_was_not_told(schemes: tuple[str, str], tmp_path: Path) -> None:
    first, second = (a_cell(2, "mpi", scheme) for scheme in schemes)
    code, output = in_turns([first, second], tmp_path / "raw", ranks=2)
    assert code
    assert f"MPI was started to reduce by {schemes[0]}, not by {schemes[1]}" in output
    assert (tmp_path / "raw" / first.path).is_dir()
    assert not (tmp_path / "raw" / second.path).exists()
