from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from once import Once
from synthetic import CRITICAL, study

from stallpoint.base.frames import Tables
from stallpoint.base.measured import SERIES
from stallpoint.models import fitting
from stallpoint.models.iteration.scenarios import scenarios
from stallpoint.models.terms.training_cells import COLUMNS, PART_KEYS
from stallpoint.records import parquet
from stallpoint.records.tables import MODEL_TABLES, TIDY_TABLES

NODES = [1, 2, 4, 8]

UNTOUCHED = {"availability", "break_even", "choices", "disturbances", "interventions"}
"""Tables of what the made-up study does not have: nothing was watched there, left out, limited or known to fail."""


def fit(tables: dict[str, pd.DataFrame], **options: Any) -> dict[str, pd.DataFrame]:
    return fitting.fit(tables, scenarios=scenarios([{"bandwidth": 10}]), **options)


SMALL: dict[str, Any] = {
    "storages": ("local",), "prefetches": (0,), "compute_batches": (64, 16, 4), "repeats": 1, "iterations": 3,
}  # fmt: skip
"""A study that has something for every table."""


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return study(**SMALL)


@pytest.fixture(scope="module")
def fitted(tables: dict[str, pd.DataFrame], once: Once) -> dict[str, pd.DataFrame]:
    return once(lambda: dict(fit(tables, nodes=NODES)))


def test_tables_can_be_written(fitted: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    assert list(fitted) == [table.name for table in MODEL_TABLES]
    for table in MODEL_TABLES:
        parquet.write(table, fitted[table.name], tmp_path / table.name)
        assert parquet.read(table, tmp_path / table.name).num_rows == len(fitted[table.name])
        assert len(fitted[table.name]) > 0 or table.name in UNTOUCHED


def test_a_table_is_made_when_it_is_first_read_and_once() -> None:
    read, (one, other) = [], MODEL_TABLES[:2]
    tables = Tables([one, other], {one.name: lambda: read.append(one.name) or [], other.name: lambda: 1 / 0})
    assert list(tables) == [one.name, other.name]
    assert other.name in tables
    assert read == []
    assert tables[one.name] is tables[one.name]
    assert read == [one.name]
    with pytest.raises(ZeroDivisionError):
        tables[other.name]


def test_intervals_hold_their_value_in_every_table(fitted: dict[str, pd.DataFrame]) -> None:
    for name, table in fitted.items():
        for column in (c.removesuffix("_low") for c in table if c.endswith("_low")):
            known = table[table[f"{column}_low"].notna()]
            assert (known[f"{column}_low"] <= known[column]).all(), (name, column)
            assert (known[column] <= known[f"{column}_high"]).all(), (name, column)


def test_a_seed_is_of_intervals_alone(tables: dict[str, pd.DataFrame], fitted: dict[str, pd.DataFrame]) -> None:
    other = fit(tables, nodes=NODES, seed=1)["communication"]
    assert not fitted["communication"].equals(other)
    assert np.allclose(fitted["communication"]["alpha"], other["alpha"], rtol=1e-3)


def test_records_without_warm_up_give_the_same_numbers_read_from_files_a_few_cells_at_a_time(
    tables: dict[str, pd.DataFrame], fitted: dict[str, pd.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 60)
    cells = list(tables["runs"]["cell"])
    files = {table.name: tmp_path / table.name for table in TIDY_TABLES}
    for table in TIDY_TABLES:
        rows = tables[table.name]
        rows = rows[~rows["warmup"].astype(bool)] if "warmup" in rows else rows
        if table in COLUMNS:
            rows = rows.sort_values("cell", key=lambda cell: cell.map(cells.index), kind="stable")
        parquet.write(table, pa.Table.from_pandas(rows, table.schema, preserve_index=False), files[table.name])
    others = parquet.read_frames([table for table in TIDY_TABLES if table not in COLUMNS], files)
    parts = []
    for part in parquet.frames_of_cells(COLUMNS, files, cells, PART_KEYS):
        pieces = [as_categories({"layers": piece})["layers"] for piece in part.pop("layers")]
        parts.append({**as_categories(part), "layers": pieces})
    assert len(parts) > 1
    assert max(len(part["layers"]) for part in parts) > 4
    for name, table in fit(as_categories(others), parts=parts, nodes=NODES).items():
        pd.testing.assert_frame_equal(table, fitted[name])


def as_categories(frames: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The frames with some of their names in another type."""
    named = ("network", "storage", "layer")
    return {key: rows.astype({name: "category" for name in named if name in rows}) for key, rows in frames.items()}


OF_TRAINING = {
    "layer_scaling", "predictions", "amdahl", "causes", "stalling", "data_share", "critical_path",
    "what_if", "remedies", "next_cells", "feeding", "rates", "hidden_communication",
    "comparisons", "traffic", "utilisation", "layer_times", "median_iterations", "median_layers", "curve_distances",
    "validation", "controls", "stall_probabilities", "time_to_accuracy", "accuracy_stalling", "fits", "costs",
}  # fmt: skip
EMPTIED = {
    "sgemm": {"sgemm_speedup", "curve_distances"},
    "collectives": {"communication", "validation", "remedies"},
    "storage_reads": {"storage_rates", "saturation", "traffic"},
    "storage_passes": {"storage_rates"},
    "copies": {"copy_rates"},
    "convergence_runs": {
        "steps_to_target", "critical_batches", "time_to_accuracy", "accuracy_stalling", "target_times",
        "target_stalling", "early_stopping",
    },
    "gradient_noise": {"noise_scale"},
    "staleness": {"staleness_shares", "worker_staleness"},
    "layers": {
        "layer_scaling", "layer_times", "median_layers", "curve_distances", "traffic",
        "validation", "remedies",
    },
    "iterations": OF_TRAINING,
}  # fmt: skip
"""Tables that a kind of record empties where there is none of it."""


@pytest.mark.parametrize(
    "missing",
    [
        ("sgemm", "storage_passes", "convergence_runs", "staleness"), ("collectives", "copies", "gradient_noise"),
        ("storage_reads",), ("iterations",),
    ],
    ids=", ".join,
)  # fmt: skip
def test_missing_kinds_of_records_empty_their_own_tables(
    tables: dict[str, pd.DataFrame], missing: tuple[str, ...]
) -> None:
    """At once, where a table is empty for want of one of them alone."""
    found = fit({**tables, **{kind: tables[kind].iloc[:0] for kind in missing}}, nodes=NODES)
    assert [name for kind in missing for name in EMPTIED[kind] if not found[name].empty] == []


@pytest.mark.parametrize(
    "missing", ["layers", *(pytest.param(kind, marks=pytest.mark.night) for kind in EMPTIED if kind != "layers")]
)
def test_a_missing_kind_of_record_leaves_the_other_tables(tables: dict[str, pd.DataFrame], missing: str) -> None:
    found = fit({**tables, missing: tables[missing].iloc[:0]}, nodes=NODES)
    assert {name for name in found if found[name].empty} - UNTOUCHED == EMPTIED[missing]


def test_nothing_measured_gives_empty_tables() -> None:
    nothing = {table.name: pd.DataFrame(columns=table.names) for table in TIDY_TABLES}
    fitted = fit(nothing, nodes=NODES)
    for table in MODEL_TABLES:
        assert fitted[table.name].empty
        parquet.to_arrow(table, fitted[table.name])


def test_runs_to_a_target_give_steps_and_times(
    tables: dict[str, pd.DataFrame], fitted: dict[str, pd.DataFrame]
) -> None:
    runs, steps = tables["convergence_runs"].query("recipe == 'momentum'"), fitted["steps_to_target"]
    means = runs.groupby(["storage", "batch"])["steps_to_target"].mean()
    assert steps.set_index(["storage", "batch"])["steps"].to_dict() == pytest.approx(means.to_dict())
    assert (steps["regime"] != "no gain").all()
    noise = fitted["critical_batches"]["noise_scale"]
    assert noise.tolist() == pytest.approx([CRITICAL] * len(means.index.unique("storage")))
    times = fitted["time_to_accuracy"].query("basis == 'measured' and steps_storage == 'local' and storage == 'local'")
    seconds = fitted["predictions"].set_index([*SERIES, "ranks"])["measured_iteration"]
    assert len(times) > 3
    for row in times.to_dict("records"):
        known = means["local"].get(row["global_batch"])
        expected = seconds[tuple(row[name] for name in (*SERIES, "ranks"))] * (known or row["steps"])
        assert row["time"] == pytest.approx(expected) or np.isnan(row["steps"])
    keys = [*SERIES, "steps_storage", "steps_sync", "recipe", "target"]
    assert not fitted["accuracy_stalling"].duplicated(keys).any()


def test_gradients_slow_down_beside_data_that_comes_over_their_link() -> None:
    tables = study(nodes=(1, 2), repeats=1, iterations=3, syncs=("wfbp",), weak=False)
    own, together = (
        fit(tables, nodes=[4], shared_links=links)["predictions"].query("nodes > 1") for links in ([], ["shared"])
    )
    meets = (own["storage"] == "shared") & (own["prefetch"] > 0)
    slower = together["predicted_communication"] / own["predicted_communication"]
    assert (slower[meets] > 1.001).all()
    assert (slower[~meets] == 1).all()
    assert (together["predicted_data"] >= own["predicted_data"]).all()


def test_workers_alone_validate_nothing() -> None:
    alone = study(**SMALL | {"nodes": (1,)})
    for name in ("iterations", "layers"):
        alone[name] = alone[name][alone[name]["scaling"] == "compute"]
    fitted = fit(alone, nodes=NODES)
    assert fitted["validation"].empty
    assert len(fitted["layer_scaling"]) > 0


def test_pieces_reach_the_table() -> None:
    tables = study(**SMALL | {"nodes": (1, 2)})
    rows = tables["collectives"]
    sizes = rows["message_bytes"].iloc[0] * 2 ** np.arange(14)
    one = rows[rows["message_bytes"] == rows["message_bytes"].iloc[0]]
    seconds = 1e-5 + 1e-10 * np.minimum(sizes, 2**16) + 2e-9 * np.maximum(sizes - 2**16, 0)
    jumping = [one.assign(message_bytes=size, calls=1, seconds=time) for size, time in zip(sizes, seconds, strict=True)]
    table = fit({**tables, "collectives": pd.concat(jumping)}, nodes=NODES)["communication"].query("fit == 'place'")
    assert table["piece"].tolist() == [0, 1]
    assert table["from_bytes"].tolist() == [0, 2**16]
    assert table["beta"].to_numpy() == pytest.approx([1e-10, 2e-9], rel=0.01)
