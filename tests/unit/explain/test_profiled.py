"""Profiled runs in a study: the records say what was planted in the traces."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from planted_traces import Planted
from small_study import SCHEMA

from stallpoint.errors import InputError
from stallpoint.explain.importing import describe_traced, import_cell
from stallpoint.records.parquet import read
from stallpoint.strategies.presets import preset_from
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import KINDS
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell, ImportedTrainCell
from stallpoint.study.study import expand


def cells(folder: Path, *more: dict[str, Any], logs: Any = (), **changes: Any) -> list[Cell]:
    """The cells of a study of one profiled run of four workers, and of others like it."""
    run = {"files": str(folder / "trace.json"), "format": "profiler", "network": "theirs", "nodes": 4, "batch": 32}
    run |= {"storage": "nfs", "scaling": "weak", "sync": "ddp", "prefetch": 0, **changes}
    entry = {"device": "cuda", "nodes": 4, "traces": [run, *({**run, **other} for other in more)]}
    entry |= {"collectives": logs} if logs else {}
    return list(expand({"study": "s", "hardware": {"theirs": entry}}, SCHEMA).cells.values())


def records(cell: Cell, folder: Path) -> dict[str, pd.DataFrame]:
    assert isinstance(cell, ImportedTrainCell | ImportedCollectivesCell)
    import_cell(cell, folder / "record")
    names = [table.name for table in KINDS[cell.kind].tables]
    return {
        name: read(table, folder / "record" / f"{name}.parquet").to_pandas()
        for name, table in zip(names, KINDS[cell.kind].tables, strict=True)
    }


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    made = Planted()
    made.write(tmp_path / "trace.json")
    return made


def test_iterations_and_messages_are_those_planted(planted: Planted, tmp_path: Path) -> None:
    (cell,) = (one for one in cells(tmp_path) if isinstance(one, ImportedTrainCell) and one.scaling == "weak")
    found = records(cell, tmp_path)
    iterations, layers = found["iterations"], found["layers"].query("iteration == 2").set_index("layer")
    expected = {
        "data_wait": planted.loading, "forward": planted.forward, "backward": planted.backward,
        "exposed_communication": planted.exposed(), "update": planted.update, "iteration_time": planted.seconds(),
    }  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(iterations[name], value, rtol=1e-3)
    assert list(layers.index) == ["rest", "bucket4", "bucket3", "bucket2", "bucket1"]
    for number, size in enumerate(planted.message_bytes, start=1):
        layer = layers.loc[f"bucket{number}"]
        assert (layer["bucket"], layer["bucket_bytes"]) == (number - 1, size)
        assert layer["backward"] == pytest.approx(planted.backward / 4, rel=1e-3)
        ready = planted.loading + planted.forward + number * planted.backward / 4
        assert layer["gradient_ready"] == pytest.approx(ready, rel=1e-3)
        assert layer["all_reduce_end"] - layer["all_reduce_start"] == pytest.approx(planted.message(size), rel=1e-3)
    assert layers["forward"].sum() == pytest.approx(planted.forward, rel=1e-3)
    assert preset_from(cell.preset).grouping == "layer", "a layer of the records is what one message carries"


def test_a_run_also_tells_what_a_worker_computes_and_what_was_sent(planted: Planted, tmp_path: Path) -> None:
    (alone,) = (one for one in cells(tmp_path) if isinstance(one, ImportedTrainCell) and one.scaling == "compute")
    assert (alone.ranks, alone.batch, alone.sync) == (1, 32, "none")
    found = records(alone, tmp_path)
    np.testing.assert_allclose(found["iterations"]["iteration_time"], planted.seconds(1), rtol=1e-3)
    assert not found["iterations"]["communication"].any()
    assert (found["layers"]["bucket"] == -1).all()
    (sent,) = (one for one in cells(tmp_path) if isinstance(one, ImportedCollectivesCell))
    assert (sent.backend, sent.placement) == ("torch", (4, 1))
    rows = records(sent, tmp_path / "sent")["collectives"].groupby("message_bytes")["seconds"]
    for size, seconds in rows:
        np.testing.assert_allclose(seconds, planted.message(int(str(size))), rtol=1e-3)
        assert len(seconds) == planted.iterations


def test_a_log_of_as_many_workers_takes_the_place_of_what_was_sent(planted: Planted, tmp_path: Path) -> None:
    log = {"file": str(tmp_path / "log.txt"), "nodes": 4, "format": "nccl-tests"}
    found = [one for one in cells(tmp_path, logs=[log]) if isinstance(one, ImportedCollectivesCell)]
    assert [one.format for one in found] == ["nccl-tests"]
    other = [one for one in cells(tmp_path, logs=[{**log, "nodes": 2}]) if isinstance(one, ImportedCollectivesCell)]
    assert sorted(one.format for one in other) == ["nccl-tests", "profiler"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "resnet50"}, r"traces\[0\]\.network: resnet50 is a network that is known here"),
        ({"sync": "naive"}, r"traces\[0\]\.sync: naive sends after the backward pass"),
        ({"format": "nsys"}, r"traces\[0\]\.format"),
    ],
)
def test_what_cannot_be_is_refused_by_name(planted: Planted, changes: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        cells(tmp_path, **changes)


def test_traces_that_are_not_of_the_run_are_refused(tmp_path: Path) -> None:
    Planted(workers=2).write(tmp_path / "trace.json")
    with pytest.raises(InputError, match=r"trace\.json: 2 worker\(s\), but its entry in the study says 4"):
        records(cells(tmp_path)[0], tmp_path)
    Planted(sized=False).write(tmp_path / "trace.json")
    with pytest.raises(InputError, match=r"trace\.json: it does not say how large its all-reduces are"):
        records(cells(tmp_path)[0], tmp_path)
    silent = Planted()
    silent.backward_marked = False
    silent.write(tmp_path / "trace.json")
    with pytest.raises(InputError, match=r"trace\.json: it does not say where the backward pass begins"):
        records(cells(tmp_path)[0], tmp_path)
    Planted().write(tmp_path / "trace.json")
    Planted(message_bytes=(4_000,)).write(tmp_path / "other.json")
    files = [str(tmp_path / name) for name in ("trace.json", "other.json")]
    assert len(describe_traced("theirs", files[:1], ["profiler"])["layer"]) == 5
    with pytest.raises(InputError, match=r"other\.json: its layers are not those of .*trace\.json"):
        describe_traced("theirs", files, ["profiler"])
