from dataclasses import replace

import numpy as np
import pytest
from sample_cells import SGEMM as SGEMM_CELL
from sample_cells import TRAIN

from stallpoint.measure.machine.sensors import Reading, between
from stallpoint.measure.recorder import Recorder
from stallpoint.records.tables import GATHERS, ITERATIONS, LAYERS, SGEMM, Table

CELL = replace(TRAIN, nodes=2, repeat=3, workers_per_node=2, batch=32, worker_batch=8)


def measured(table: Table, names: str) -> dict[str, float]:
    return dict.fromkeys(names.split(), 0.5) | {"iteration": 4, "warmup": False}


def test_columns_of_the_cell_are_added_to_every_row() -> None:
    recorder = Recorder(CELL, rank=3)
    phases = "start data_wait read decode host_to_device forward backward communication exposed_communication update"
    recorder.add(ITERATIONS, **measured(ITERATIONS, f"{phases} iteration_time loss"), **between(Reading(), Reading()))
    (row,) = recorder.arrow(ITERATIONS).to_pylist()
    assert row["cell"] == CELL.path
    assert (row["rank"], row["ranks"], row["nodes"], row["repeat"]) == (3, 4, 2, 3)
    assert (row["batch"], row["global_batch"], row["worker_batch"]) == (32, 32, 8)
    assert row["visit"] == 1
    assert row["warmup"] is False  # the row's, not the number of warm-up iterations that the cell has


def test_lists_make_rows_and_single_values_are_repeated() -> None:
    recorder = Recorder(CELL, rank=0)
    times = "forward backward gradient_ready all_reduce_start all_reduce_end " + " ".join(GATHERS)
    for iteration in range(2):
        recorder.add(
            LAYERS,
            **measured(LAYERS, times) | {"iteration": iteration, "forward": np.array([1.0, 2.0, 3.0])},
            layer_index=[0, 1, 2],
            layer=("a", "b", "c"),
            layer_type="relu",
            gradient_bytes=[1, 2, 3],
            bucket=[2, 1, 0],
            bucket_bytes=[1, 2, 3],
        )
    table = recorder.arrow(LAYERS)
    assert table.schema.equals(LAYERS.schema, check_metadata=True)
    assert table["iteration"].to_pylist() == [0, 0, 0, 1, 1, 1]
    assert table["layer"].to_pylist() == ["a", "b", "c"] * 2
    assert table["forward"].to_pylist() == [1.0, 2.0, 3.0] * 2


def test_a_table_without_rows_is_empty_but_whole() -> None:
    recorder = Recorder(CELL, rank=0)
    assert recorder.tables == []
    assert recorder.arrow(LAYERS).num_rows == 0
    assert recorder.arrow(LAYERS).schema.equals(LAYERS.schema, check_metadata=True)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"layers.*\[2, 3\]"):
        Recorder(CELL, rank=0).add(LAYERS, layer_index=[0, 1], forward=[1.0, 2.0, 3.0])


def test_a_column_that_is_neither_measured_nor_the_cells_is_an_error() -> None:
    recorder = Recorder(SGEMM_CELL, rank=0)
    recorder.add(SGEMM, layer="fc6", layer_type="fully-connected", m=1, k=1, n=1, operations=1, sample=0, seconds=1.0)
    with pytest.raises(KeyError, match="worker_batch"):
        recorder.arrow(SGEMM)
