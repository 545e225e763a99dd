from pathlib import Path

from launching import run_job

from stallpoint import parquet
from stallpoint.cells import CollectivesCell, cell_from_json
from stallpoint.records import COLLECTIVES, ENVIRONMENTS, RUNS


def test_two_ranks_record_every_call_of_every_size(tmp_path: Path) -> None:
    cell = CollectivesCell("cpu", 2, 1, 1, "cpu", 1, 1, True, message_bytes=[1024, 4 << 20], samples=3)
    folder = tmp_path / "raw" / cell.path
    assert run_job(cell, folder, ranks=2) == (0, "")

    (run,) = parquet.read(RUNS, folder / "runs.parquet").to_pylist()
    assert (run["status"], run["reason"], run["ranks"], run["cell"]) == ("ok", "", 2, cell.path)
    assert cell_from_json(run["settings"]) == cell
    assert run["duration"] > 0

    environments = parquet.read(ENVIRONMENTS, folder / "environments.parquet").to_pylist()
    assert [(row["rank"], row["node"], row["threads"]) for row in environments] == [(0, "node0", 1), (1, "node0", 1)]

    rows = parquet.read(COLLECTIVES, folder / "collectives.parquet").to_pylist()
    assert [(row["rank"], row["message_bytes"], row["sample"], row["warmup"]) for row in rows] == [
        (rank, size, sample, sample == 0) for rank in (0, 1) for size in (1024, 4 << 20) for sample in range(4)
    ]
    assert all(row["seconds"] > 0 for row in rows)
