"""What `snakemake next` adds: the cells that tell most for their cost, within a budget, until it is certain enough."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stallpoint.errors import InputError
from stallpoint.records.parquet import write
from stallpoint.records.tables import NEXT_CELLS
from stallpoint.schedule.next_round import FILE, Round, added, next_round, with_cells
from stallpoint.schedule.next_round import write as write_round
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.study import expand

from small_study import CONFIG, SCHEMA  # isort: skip

CURVE = {
    "network": "alexnet", "hardware": "cpu", "storage": "disk", "scaling": "strong", "sync": "wfbp", "prefetch": 1,
    "batch": 8, "workers_per_node": 1,
}  # fmt: skip


def row(kind: str, ranks: int, narrowing: float, hours: float, **changes: Any) -> dict[str, Any]:
    values = {
        **CURVE, "kind": kind, "nodes": ranks, "ranks": ranks, "worker_batch": 8 // ranks, "width": 2.0,
        "narrowing": narrowing, "node_hours": hours, "rank_in_curve": 1, **changes,
    }  # fmt: skip
    told = values["narrowing"] / values["node_hours"]
    return values | {"expected_width": values["width"] - narrowing, "narrowing_per_node_hour": told}


ROWS = [
    row("train", 4, 1.0, 0.5), row("train", 8, 1.5, 0.1), row("collectives", 8, 1.9, 0.01),
    row("train", 2, 0.4, 0.2, sync="naive"), row("compute", 1, 0.3, 0.2, sync="naive", worker_batch=1),
    row("train", 4, 0.9, 0.01, hardware="archive.cpu"),
]  # fmt: skip


def of(rows: list[dict[str, Any]], folder: Path, **limits: float) -> Round:
    write(NEXT_CELLS, pd.DataFrame(rows)[NEXT_CELLS.names], folder / "next_cells.parquet")
    study = expand(CONFIG, SCHEMA)
    return next_round(folder, study.cells, study.config["hardware"], **({"node_hours": 1.0, "within": 2.0} | limits))


def test_the_most_telling_cell_of_each_curve_is_taken_within_the_budget(tmp_path: Path) -> None:
    found = of(ROWS, tmp_path)
    assert [(entry["sync"], entry["nodes"]) for entry in found.cells] == [("wfbp", 8), ("naive", 2)]
    assert found.hours == pytest.approx(0.3)
    small = of(ROWS, tmp_path, node_hours=0.25)
    assert [(entry["sync"], entry["nodes"]) for entry in small.cells] == [("wfbp", 8)]
    assert found.outcome == "2 cells, 0.3 node-hours"


def test_it_stops_where_the_answer_is_certain_enough_or_nothing_tells_more(tmp_path: Path) -> None:
    certain = of(ROWS, tmp_path, within=4.0)
    assert (list(certain.cells), certain.outcome.split(":")[0]) == (
        [],
        "every stalling point is known within a factor of 4",
    )
    dear = of(ROWS, tmp_path, node_hours=0.05)
    assert dear.outcome == (
        "2 stalling points are not known within a factor of 2, but each cell that would help takes over 0.05 node-hours"
    )
    silent = of([row("train", 4, 0.0, 0.1)], tmp_path)
    assert silent.outcome == "one stalling point is not known within a factor of 2, but no cell would help"
    assert "comes first" in next_round(tmp_path / "none", {}, ["cpu"], node_hours=1, within=2).outcome


def test_entries_make_the_cells_that_were_meant(tmp_path: Path) -> None:
    """A place that was measured gets a further repeat; a compute cell stands alone."""
    found = of([row("train", 4, 1.0, 0.5), row("compute", 1, 0.5, 0.1, sync="naive", worker_batch=1)], tmp_path)
    before = expand(CONFIG, SCHEMA).cells
    after = expand(with_cells(CONFIG, found.cells), SCHEMA).cells
    new = [after[path] for path in after if path not in before]
    assert all(path in after for path in before)
    trained = {(cell.scaling, cell.nodes, cell.repeat, cell.worker_batch) for cell in new if type(cell) is TrainCell}
    assert trained == {("strong", 4, 2, 2), ("compute", 1, 1, 1)}


def test_rounds_are_kept_and_a_broken_file_is_named(tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert added(results) == []
    entries = [{"network": "alexnet", "nodes": 2, "repeats": 2}]
    write_round(results, entries)
    assert added(results) == entries
    for text in ("include: 3", "[", "\x00", ""):
        (results / FILE).write_text(text)
        with pytest.raises(InputError, match=r"next\.yaml: not a list of cells"):
            added(results)
