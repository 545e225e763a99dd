"""Expanding a study: what runs, what is left out and why, and messages for wrong entries."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.cells import TrainCell, cell_from_json
from stallpoint.errors import InputError
from stallpoint.study import Study, expand

ROOT = Path(__file__).parents[2]
SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
BLOCK = {
    "network": "alexnet",
    "hardware": "cpu",
    "nodes": [1, 2, 4],
    "batch": 8,
    "storage": "disk",
    "scaling": "strong",
}
CONFIG: dict[str, Any] = {
    "study": "small",
    "hardware": {"cpu": {"device": "cpu", "nodes": 4}},
    "storage": {"disk": {"path": "images", "format": "files", "generate": 16}},
    "matrix": [BLOCK],
}


def study(**changes: Any) -> Study:
    return expand({**copy.deepcopy(CONFIG), **changes}, SCHEMA)


def block(**changes: Any) -> dict[str, Any]:
    return {**BLOCK, **changes}


def train_cells(expanded: Study) -> list[TrainCell]:
    return [cell for cell in expanded.cells.values() if isinstance(cell, TrainCell)]


def reasons(expanded: Study) -> list[str]:
    return [entry.reason for entry in expanded.left_out]


def test_strong_scaling_splits_the_global_batch() -> None:
    cells = train_cells(study())
    assert [(cell.nodes, cell.worker_batch, cell.global_batch) for cell in cells] == [(1, 8, 8), (2, 4, 8), (4, 2, 8)]


def test_weak_scaling_keeps_the_worker_batch() -> None:
    cells = train_cells(study(matrix=[block(scaling="weak")]))
    assert [(cell.nodes, cell.worker_batch, cell.global_batch) for cell in cells] == [(1, 8, 8), (2, 8, 16), (4, 8, 32)]


def test_compute_cells_are_one_worker_at_the_batches_of_the_node_counts_even_beyond_the_hardware() -> None:
    cells = train_cells(study(matrix=[block(scaling="compute", nodes=[1, 8], sync=["naive", "wfbp"])]))
    assert [(cell.nodes, cell.ranks, cell.batch, cell.worker_batch, cell.sync) for cell in cells] == [
        (1, 1, 8, 8, "none"),
        (1, 1, 1, 1, "none"),
    ]


def test_workers_per_node_multiply_the_ranks() -> None:
    hardware = {"gpus": {"device": "cuda", "nodes": 2, "workers_per_node": 4}}
    cells = train_cells(study(hardware=hardware, matrix=[block(hardware="gpus", nodes=[1, 2])]))
    assert [(cell.ranks, cell.worker_batch) for cell in cells] == [(4, 2), (8, 1)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes": 8}, "8 nodes, but hardware cpu has 4"),
        ({"nodes": 4, "batch": 2}, "b < 1: batch 2 on 4 workers"),
        ({"nodes": 3, "batch": 8}, "batch 8 is not divisible by 3 workers"),
    ],
)
def test_impossible_combinations_are_left_out_with_the_reason(change: dict[str, Any], reason: str) -> None:
    expanded = study(matrix=[block(nodes=1), block(**change)])
    assert reasons(expanded) == [reason]
    assert len(train_cells(expanded)) == 1
    assert reason in expanded.plan()


def test_conditions_exclude_cells_of_the_matrix() -> None:
    expanded = study(exclude=["network == 'alexnet' and nodes > 1", "worker_batch < 3"])
    assert [cell.nodes for cell in train_cells(expanded)] == [1]
    assert reasons(expanded) == ["excluded: network == 'alexnet' and nodes > 1"] * 2


def test_an_included_cell_is_added_after_exclusion() -> None:
    entry = {key: BLOCK[key] for key in ("network", "hardware", "storage", "scaling")} | {"nodes": 2, "batch": 2}
    expanded = study(exclude=["nodes > 1"], include=[entry])
    assert [(cell.nodes, cell.batch) for cell in train_cells(expanded)] == [(1, 8), (2, 2)]


def test_an_included_cell_changes_the_settings_of_that_cell_alone() -> None:
    before = study(repeats=2)
    entry = block(nodes=2, iterations=99, repeats=1)
    after = study(repeats=2, include=[entry])
    changed = [path for path, cell in after.cells.items() if before.cells.get(path) != cell]
    assert len(changed) == 1
    assert after.cells[changed[0]].iterations == 99
    assert set(before.cells) - set(after.cells) == {changed[0].replace("repeat~1", "repeat~2")}


def test_supporting_jobs_follow_from_the_training_cells() -> None:
    expanded = study(sgemm={"batches": [4, 1]}, collectives={"largest": 5000}, storage_reads={})
    assert [cell.batches for cell in expanded.of_kind("sgemm")] == [[1, 4]]
    assert [(cell.nodes, cell.message_bytes) for cell in expanded.of_kind("collectives")] == [
        (2, [1024, 4096, 5000]),
        (4, [1024, 4096, 5000]),
    ]
    assert [cell.nodes for cell in expanded.of_kind("storage")] == [1, 2, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"matrix": [block(network="alexnett")]},
            "matrix[0].network: unknown network 'alexnett', did you mean 'alexnet'",
        ),
        ({"matrix": [block(hardware="gpu")]}, "matrix[0].hardware: unknown hardware 'gpu'"),
        ({"matrix": [block(storage="dsk")]}, "matrix[0].storage: unknown storage 'dsk', did you mean 'disk'"),
        ({"matrix": [block(bacth=3)]}, "matrix[0]: unknown key 'bacth', did you mean 'batch'"),
        ({"matrix": [block(batch=-4)]}, "matrix[0].batch: -4 is less than 1"),
        ({"matrix": [block(batch=[8, -4])]}, "matrix[0].batch[1]: -4 is less than 1"),
        ({"matrix": [block(sync="wfpb")]}, "matrix[0].sync: unknown preset 'wfpb', did you mean 'wfbp'?"),
        ({"matrix": [block(nodes="two")]}, "matrix[0].nodes: 'two' should be of type integer"),
        ({"iteration": 3}, "unknown key 'iteration', did you mean 'iterations'"),
        ({"storage": {"disk": {"format": "files"}}}, "storage.disk: missing path"),
        ({"exclude": ["nods > 1"]}, "exclude[0]: 'nods > 1'"),
        ({"matrix": [block(nodes=8)]}, "no cell to run"),
        ({"what_if": [{"sync": "wfpb"}]}, "what_if[0].sync: unknown preset 'wfpb', did you mean 'wfbp'?"),
        ({"what_if": [{"bandwith": 2}]}, "what_if[0]: unknown key 'bandwith', did you mean 'bandwidth'?"),
        ({"what_if": [{}, {"latency": 0}]}, "what_if[1].latency"),
        ({"what_if": [{"link": {"latency": 1e-6}}]}, "what_if[0].link: missing bandwidth"),
        (
            {"storage": {"disk": CONFIG["storage"]["disk"], "b": {"path": "images", "format": "raw"}}},
            "storage.b.path: images already holds the files images of storage.disk",
        ),
    ],
)
def test_wrong_entries_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        study(**changes)
    assert message in str(error.value)


def test_every_wrong_entry_is_listed_at_once() -> None:
    with pytest.raises(InputError) as error:
        study(seed=-1, matrix=[block(batch=0)])
    assert str(error.value).count("\n") == 1


@given(
    nodes=st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
    batch=st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True),
    scaling=st.lists(st.sampled_from(["strong", "weak", "compute"]), min_size=1, max_size=3, unique=True),
)
def test_no_cell_is_ever_wrong_and_none_gets_lost(nodes: list[int], batch: list[int], scaling: list[str]) -> None:
    blocks = [block(nodes=nodes, batch=batch, scaling=scaling), block(nodes=1, scaling="weak")]
    expanded = study(matrix=blocks)
    for cell in train_cells(expanded):
        assert cell.worker_batch >= 1
        assert cell.nodes <= 4
        if cell.scaling == "strong":
            assert cell.global_batch == cell.batch
    distinct = {(n, b, s) for n in nodes for b in batch for s in scaling} | {(1, 8, "weak")}
    compute = {b // n for n, b, s in distinct if s == "compute" and b % n == 0}
    others = {(n, b, s) for n, b, s in distinct if s != "compute" and n <= 4 and (s == "weak" or b % n == 0)}
    assert len(train_cells(expanded)) == len(compute) + len(others)


@pytest.mark.parametrize("name", ["config.yaml", "studies/keuper-2016.yaml", "studies/shi-2018.yaml"])
def test_shipped_studies_are_valid_and_cells_survive_json(name: str) -> None:
    expanded = expand(yaml.safe_load((ROOT / "config" / name).read_text()), SCHEMA)
    for path, cell in expanded.cells.items():
        assert cell_from_json(cell.to_json()) == cell
        assert cell.path == path


@pytest.mark.parametrize(
    ("script", "page"), [("document_config.py", "config/README.md"), ("document_presets.py", "docs/presets.md")]
)
def test_generated_pages_are_up_to_date(script: str, page: str) -> None:
    written = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script)], capture_output=True, text=True, check=True
    )
    assert written.stdout == (ROOT / page).read_text()


def test_cells_carry_what_their_preset_does() -> None:
    cells = train_cells(study(presets={"short": {"like": "wfbp", "gradient_bits": 8}}, matrix=[block(sync="short")]))
    assert {cell.sync for cell in cells} == {"short"}
    assert all(cell.preset["gradient_bits"] == 8 for cell in cells)


def test_collectives_are_timed_for_each_reduction_that_is_used() -> None:
    expanded = study(
        collectives={}, matrix=[block(nodes=[1, 2], sync=["naive", "wfbp", "horovod", "ddp"], scaling="strong")]
    )
    assert [(cell.nodes, cell.backend, cell.reduction) for cell in expanded.of_kind("collectives")] == [
        (2, "mpi", "library"),
        (2, "mpi", "ring"),
        (2, "torch", "library"),
    ]
