"""Imported cells: the records are those of the files, and models take them as they take measured ones."""

import hashlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import closed_forms
import numpy as np
import pandas as pd
import pytest
from all_reduce_samples import ALPHA, BETA, SIZES, nccl_tests, osu
from small_study import SCHEMA
from table_vi import TABLE_VI, table_vi, table_vi_cell

from stallpoint.archive.importing import ITERATIONS_AT_ONCE, ROWS_AT_ONCE, compose, describe_traced, import_cell
from stallpoint.base.measured import step_rows
from stallpoint.errors import InputError
from stallpoint.inputs.layer_trace import TracedIteration, to_text
from stallpoint.models.taskgraph import Costs, MessageTimes, iteration_tasks, schedule
from stallpoint.models.terms import communication
from stallpoint.records.parquet import read, to_arrow
from stallpoint.records.tables import ITERATIONS, NETWORK_LAYERS, RUNS, TABLES, TIDY_TABLES
from stallpoint.strategies.presets import PRESETS
from stallpoint.study.cells import Cell
from stallpoint.study.collect import collect_all
from stallpoint.study.kinds import KINDS
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell, ImportedTrainCell
from stallpoint.study.study import expand


def imported(cell: Cell, folder: Path) -> dict[str, pd.DataFrame]:
    assert isinstance(cell, ImportedTrainCell | ImportedCollectivesCell)
    import_cell(cell, folder / "cell")
    return {
        table.name: read(table, folder / "cell" / f"{table.name}.parquet").to_pandas()
        for table in KINDS[cell.kind].tables
    }


# --- Table VI and the DAG model -------------------------------------------------------------------


def test_table_vi_becomes_the_records_of_a_training_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.rename", lambda *_: pytest.fail("tables that were there are replaced: all come at once"))
    cell = table_vi_cell()
    tables = imported(cell, tmp_path)
    (run,) = tables["runs"].to_dict("records")
    assert (run["kind"], run["status"], run["cell"], run["ranks"]) == ("imported-train", "ok", cell.path, 2)
    assert run["source"] == f"{TABLE_VI} (SHA-256 {hashlib.sha256(TABLE_VI.read_bytes()).hexdigest()})"
    (iteration,) = tables["iterations"].to_dict("records")
    layers = tables["layers"]
    assert list(layers["layer"]) == [layer.name for layer in table_vi().layers]
    assert iteration["data_wait"] == pytest.approx(1.2)
    assert iteration["forward"] == pytest.approx(layers["forward"].sum())
    assert iteration["backward"] == pytest.approx(layers["backward"].sum())
    phases = ["data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update"]
    assert iteration["iteration_time"] == pytest.approx(sum(iteration[phase] for phase in phases))
    assert iteration["global_batch"] == 2048
    assert not step_rows(tables["iterations"], layers).isna().any(axis=None)


def test_in_table_vi_communication_hides_behind_the_backward_pass() -> None:
    """Section V-C on the K80 cluster: "fully overlapped with computing tasks". All that is left is conv1's own."""
    phases, layers = compose(table_vi_cell(), table_vi())
    assert phases["exposed_communication"] == pytest.approx(123.424e-6)
    naive, _ = compose(table_vi_cell(sync="naive"), table_vi())
    assert naive["exposed_communication"] == pytest.approx(phases["communication"])
    sent = [(ready, start, end) for ready, start, end in zip(
        layers["gradient_ready"], layers["all_reduce_start"], layers["all_reduce_end"], strict=True
    ) if start is not None]  # fmt: skip
    assert len(sent) == 8
    assert all(ready <= start < end for ready, start, end in sent)
    assert all(end <= start for (_, _, end), (_, start, _) in pairwise(reversed(sent)))


@pytest.mark.parametrize("sync", ["naive", "wfbp"])
def test_the_equations_on_table_vi_agree_with_its_dag_run_task_by_task(sync: str) -> None:
    """Eqs. (2) and (4) as closed forms, and the DAG of Fig. 1 with two workers, iteration after iteration."""
    layers = table_vi().layers
    forward, backward, reduce = (
        [getattr(layer, name) for layer in layers] for name in ("forward", "backward", "communication")
    )
    phases, _ = compose(table_vi_cell(sync=sync, prefetch=0), table_vi())
    sent = [MessageTimes((layer,), seconds) for layer, seconds in reversed(list(enumerate(reduce)))]
    costs = [Costs(1.2, 0.0, forward, backward, sent, 0.0)] * 2
    ends = schedule(iteration_tasks(costs, PRESETS[sync].preset, prefetch=False)).end
    assert ends["update of 1"] - ends["update of 0"] == pytest.approx(phases["iteration_time"])
    seconds = closed_forms.iteration_seconds(
        *map(np.array, (1.2, 0.0, sum(forward), sum(backward), phases["exposed_communication"], 0.0)),
        prefetch="none",
    )  # fmt: skip
    assert float(seconds) == pytest.approx(phases["iteration_time"])


def test_reading_ahead_hides_the_storage_of_table_vi() -> None:
    """Eq. (5) with t_io of Table V's kind, D / B_io: two workers' 1024 images at 1.1 GB/s, behind 17 s of computing."""
    cell = table_vi_cell()
    phases, _ = compose(cell, table_vi())
    assert phases["read"] == cell.read == pytest.approx(2 * 1024 * 256 * 256 * 3 / 1.1e9, rel=0.02)
    seconds = closed_forms.iteration_seconds(
        *map(np.array, (cell.read, 0.0, phases["forward"], phases["backward"], phases["exposed_communication"], 0.0)),
        prefetch="host",
    )  # fmt: skip
    assert PRESETS[cell.sync].preset.strategy.equation(prefetch=True) == "eq. 5"
    assert float(seconds) == pytest.approx(phases["iteration_time"] - phases["data_wait"])


def test_warm_up_is_marked_and_iterations_follow_one_another(tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(to_text([table_vi()] * 3))
    tables = imported(table_vi_cell(files=[str(file)] * 1, iterations=3, warmup=1), tmp_path)
    iterations = tables["iterations"]
    assert list(iterations["warmup"]) == [True, False, False]
    assert list(iterations["start"]) == pytest.approx([n * iterations["iteration_time"][0] for n in range(3)])


def test_iterations_slower_than_the_measured_median_are_no_contradiction(tmp_path: Path) -> None:
    """A study has one iteration time for all iterations of a trace, of which some computed or communicated longer."""
    file, one = tmp_path / "trace.txt", table_vi()
    computing = replace(one, layers=[replace(layer, backward=3 * layer.backward) for layer in one.layers])
    waiting = replace(one, layers=[replace(layer, communication=200 * layer.communication) for layer in one.layers])
    file.write_text(to_text([one, computing, waiting]))
    median = compose(table_vi_cell(), one)[0]["iteration_time"]
    cell = table_vi_cell(files=[str(file)], iterations=3, iteration_time=median)
    import_cell(cell, tmp_path / cell.path)
    tables = {table.name: tmp_path / f"{table.name}.parquet" for table in TIDY_TABLES}
    assert collect_all([tmp_path / cell.path], tables) == ""
    first, second, third = read(ITERATIONS, tables["iterations"]).to_pylist()
    assert first["iteration_time"] == third["iteration_time"] == median
    assert second["iteration_time"] == pytest.approx(median + 2 * second["backward"] / 3, rel=0.01)


def test_each_rank_may_have_a_file(tmp_path: Path) -> None:
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text(to_text([table_vi()]))
    tables = imported(table_vi_cell(files=list(map(str, files))), tmp_path)
    assert list(tables["iterations"]["rank"]) == [0, 1]
    assert tables["layers"].groupby("rank").size().to_dict() == {0: 21, 1: 21}


def test_a_network_that_only_traces_tell_of_has_their_layers(tmp_path: Path) -> None:
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text(to_text([table_vi()] * 2))
    rows = to_arrow(NETWORK_LAYERS, describe_traced("nobodys", list(map(str, files)))).to_pandas()
    assert set(rows["network"]) == {"nobodys"}
    assert list(rows["layer"]) == [layer.name for layer in table_vi().layers]
    assert rows["gradient_bytes"].sum() == sum(layer.gradient_bytes for layer in table_vi().layers)
    assert rows[["parameters", "multiply_adds"]].isna().all(axis=None)
    files[1].write_text(to_text([TracedIteration(1.0, table_vi().layers[1:])]))
    with pytest.raises(InputError, match=r"b\.txt: its layers are not those of .*a\.txt, .* different names"):
        describe_traced("nobodys", list(map(str, files)))


def test_long_files_are_read_in_parts_that_follow_one_another(tmp_path: Path) -> None:
    trace, log = tmp_path / "trace.txt", tmp_path / "log.txt"
    count = 2 * ITERATIONS_AT_ONCE + 1
    trace.write_text(to_text([table_vi()] * count))
    iterations = imported(table_vi_cell(files=[str(trace)], iterations=count), tmp_path / "a")["iterations"]
    assert list(iterations["iteration"]) == list(range(count))
    assert list(iterations["start"]) == pytest.approx(np.cumsum([0, *iterations["iteration_time"][:-1]]))
    count = 2 * ROWS_AT_ONCE + 1
    log.write_text(osu(sizes=(), extra="\n".join(["1024  12.0"] * count)))
    study = {"study": "s", "hardware": {"k": {"device": "cpu", "nodes": 2, "collectives": [
        {"file": str(log), "nodes": 2, "format": "osu"}]}}}  # fmt: skip
    (cell,) = expand(study, SCHEMA).cells.values()
    assert list(imported(cell, tmp_path / "b")["collectives"]["sample"]) == list(range(count))
    log.write_text("x" * 1_000_000)
    with pytest.raises(InputError, match=r"log.txt, line 1: more than 100,000 characters"):
        imported(cell, tmp_path / "c")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": 100}, f"{TABLE_VI}: 1 iterations; its entry in the study says 100 (iterations)"),
        ({"scaling": "compute"}, f"{TABLE_VI}: layers communicate, but its entry in the study says 1 worker(s)"),
        ({"files": "nowhere.txt"}, "nowhere.txt: cannot be read as text"),
    ],
)
def test_files_that_are_not_what_the_study_says_are_named(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        import_cell(table_vi_cell(**changes), tmp_path / "cell")
    assert str(error.value).startswith(message)
    assert not (tmp_path / "cell").exists()


# --- all-reduces ----------------------------------------------------------------------------------


def collectives_cells(folder: Path) -> list[Cell]:
    """Two logs for 2 nodes of 4 workers, one for 4."""
    logs = {"a.log": nccl_tests(8), "b.log": nccl_tests(8), "c.log": osu(full=True)}
    for name, text in logs.items():
        (folder / name).write_text(text)
    entries = [
        {"file": str(folder / name), "nodes": nodes, "format": format}
        for name, nodes, format in (("a.log", 2, "nccl-tests"), ("b.log", 2, "nccl-tests"), ("c.log", 4, "osu"))
    ]
    hardware = {"device": "cuda", "nodes": 4, "workers_per_node": 4, "collectives": entries}
    return list(expand({"study": "s", "hardware": {"v100": hardware}}, SCHEMA).cells.values())


def test_logs_become_collectives_records_and_the_fit_finds_their_law(tmp_path: Path) -> None:
    tables = [imported(cell, tmp_path / str(index)) for index, cell in enumerate(collectives_cells(tmp_path))]
    rows = pd.concat([table["collectives"] for table in tables])
    runs = pd.concat([table["runs"] for table in tables])
    assert list(runs[["nodes", "ranks", "repeat"]].itertuples(index=False, name=None)) == [
        (2, 8, 1),
        (2, 8, 2),
        (4, 16, 1),
    ]
    assert runs["source"].str.contains("SHA-256").all()
    assert rows.groupby("nodes")["message_bytes"].unique().map(list).tolist() == [list(SIZES)] * 2
    assert not rows["warmup"].any()
    fits = communication.fit(rows, seed=0)
    for nodes, backend in ((2, "torch"), (4, "mpi")):  # NCCL serves torch.distributed
        fit = fits["v100", backend, "library", "all-reduce"].fits_by_placement[nodes, 4]
        assert fit.alpha[0] == pytest.approx(ALPHA, rel=0.02)
        assert fit.beta[0] == pytest.approx(BETA, rel=0.001)


def test_a_size_that_comes_again_is_another_sample(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(osu(sizes=(1024, 4096, 1024)))
    entry = {"file": str(tmp_path / "log"), "nodes": 2, "format": "osu"}
    hardware = {"v100": {"device": "cpu", "nodes": 2, "collectives": [entry]}}
    (cell,) = expand({"study": "s", "hardware": hardware}, SCHEMA).cells.values()
    rows = imported(cell, tmp_path)["collectives"]
    assert list(zip(rows["message_bytes"], rows["sample"], strict=True)) == [(1024, 0), (4096, 0), (1024, 1)]


def test_every_table_of_an_imported_cell_is_one_of_the_records() -> None:
    for kind in ("imported-train", "imported-collectives"):
        assert KINDS[kind].tables[0] == RUNS
        assert all(TABLES[table.name] == table for table in KINDS[kind].tables)
