"""A run exported as layer-wise traces, and imported again by the study that comes with them."""

from pathlib import Path

import pandas as pd
import pytest
import synthetic
import yaml
from small_study import SCHEMA
from test_importing import imported

from stallpoint.archive.exporting import export_trace
from stallpoint.base.measured import measured, step_rows
from stallpoint.errors import InputError
from stallpoint.inputs.layer_trace import from_text
from stallpoint.models.terms.data import TrainingData
from stallpoint.study.study import expand

COMPARED = ["layer_index", "layer", "layer_type", "forward", "backward", "gradient_bytes"]


@pytest.fixture(scope="module")
def tidy() -> dict[str, pd.DataFrame]:
    return synthetic.study(storages=("local",), repeats=1)


def cell_of(tidy: dict[str, pd.DataFrame], *words: str) -> str:
    """The only training cell whose path has all the words."""
    (cell,) = (cell for cell in tidy["runs"]["cell"] if all(f"/{word}/" in cell for word in words))
    return str(cell)


def exported(tidy: dict[str, pd.DataFrame], cell: str, folder: Path) -> Path:
    synthetic.write_raw(tidy, cell, folder / "raw")
    export_trace(folder / "raw", folder / "traces")
    return folder / "traces"


WORDS = ("nodes~4", "scaling~strong", "sync~wfbp")


@pytest.mark.parametrize("words", [(*WORDS, "prefetch~0"), (*WORDS, "prefetch~2"), ("scaling~compute", "batch~16")])
def test_a_run_exported_and_imported_again_has_the_same_layers(
    tidy: dict[str, pd.DataFrame], words: tuple[str, ...], tmp_path: Path
) -> None:
    cell = cell_of(tidy, *words)
    traces = exported(tidy, cell, tmp_path)
    study = yaml.safe_load((traces / "study.yaml").read_text())
    again, *_ = expand(study, SCHEMA).cells.values()
    assert again.path.removeprefix("imported-") == cell
    tables = imported(again, tmp_path)
    before, after = (
        frame[~frame["warmup"]].sort_values(["rank", "iteration", "layer_index"], ignore_index=True)
        for frame in (tidy["layers"][tidy["layers"]["cell"] == cell], tables["layers"])
    )
    pd.testing.assert_frame_equal(before[COMPARED], after[COMPARED], rtol=1e-5, check_dtype=False)
    took, takes = (frame["all_reduce_end"] - frame["all_reduce_start"] for frame in (before, after))
    if after["ranks"].iloc[0] > 1:
        pd.testing.assert_series_equal(took, takes, rtol=1e-4)
    else:
        assert takes.isna().all()


def test_iterations_composed_again_take_as_long_as_they_did(tidy: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    """The made-up study's iterations follow the DAG model, so composing them from their parts gives them back."""
    cell = cell_of(tidy, *WORDS, "prefetch~0")
    study = yaml.safe_load((exported(tidy, cell, tmp_path) / "study.yaml").read_text())
    before = tidy["iterations"][(tidy["iterations"]["cell"] == cell) & ~tidy["iterations"]["warmup"]]
    (trace,) = study["hardware"]["cpu"]["traces"]
    assert trace.pop("iteration_time") == pytest.approx(before["iteration_time"].median(), rel=1e-4)
    tables = imported(next(iter(expand(study, SCHEMA).cells.values())), tmp_path)
    for rank, rows in tables["iterations"].groupby("rank"):
        was = before[before["rank"] == rank]["iteration_time"].to_numpy()
        assert rows["iteration_time"].to_numpy() == pytest.approx(was, rel=0.1)


def test_the_model_reads_as_long_from_imported_runs(tidy: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    cell = cell_of(tidy, "nodes~1", "scaling~strong", "sync~wfbp", "prefetch~2")
    study = yaml.safe_load((exported(tidy, cell, tmp_path) / "study.yaml").read_text())
    again = imported(next(iter(expand(study, SCHEMA).cells.values())), tmp_path)
    seconds = []
    for tables in ({name: frame[frame["cell"] == cell] for name, frame in tidy.items() if "cell" in frame}, again):
        steps = step_rows(tables["iterations"], tables["layers"])
        data = TrainingData(tables["runs"], steps, tidy["storage_reads"].iloc[:0], seed=0)
        (point,) = measured(steps, seed=0)
        seconds.append(float(data.seconds(point, (1, 1), point.point.worker_batch)[0]))
    assert seconds[0] == pytest.approx(seconds[1], rel=0.05)


def test_layers_sent_in_one_message_share_its_time_by_their_bytes(tmp_path: Path) -> None:
    tidy = synthetic.study(storages=("local",), repeats=1)
    cell = cell_of(tidy, *WORDS, "prefetch~0")
    together = (tidy["layers"]["cell"] == cell) & tidy["layers"]["layer"].isin(["conv1", "conv2"])
    tidy["layers"].loc[together, ["bucket", "all_reduce_start", "all_reduce_end"]] = (99, 1.0, 1.5)
    (first, *_) = from_text((exported(tidy, cell, tmp_path) / "rank0.txt").read_text(), "rank0.txt")
    shared = {layer.name: layer for layer in first.layers if layer.name in ("conv1", "conv2")}
    assert sum(layer.communication for layer in shared.values()) == pytest.approx(0.5, rel=1e-5)
    one, two = shared["conv1"], shared["conv2"]
    assert one.communication / two.communication == pytest.approx(one.gradient_bytes / two.gradient_bytes, rel=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nodes~8",), "nothing to export, the cell could not run: out of memory on rank 0"),
        (("hardware~cpu", "nodes~2"), "nothing to export, collectives cells have no iterations"),
    ],
)
def test_what_has_no_iterations_is_not_exported(
    tidy: dict[str, pd.DataFrame], words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    (cell, *_) = (
        cell for cell in tidy["runs"]["cell"]
        if all(f"/{word}/" in cell for word in words) and cell.startswith(("train", "coll")[len(words) - 1])
    )  # fmt: skip
    with pytest.raises(InputError, match=message):
        exported(tidy, cell, tmp_path)
    assert not (tmp_path / "traces").exists()
