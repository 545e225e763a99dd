"""The runs that a study asks for under `convergence`, and what it is told of those that cannot be."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from stallpoint.errors import InputError
from stallpoint.study.kinds.convergence_kind import ConvergenceCell
from stallpoint.study.study import Study, expand

ROOT = Path(__file__).parents[3]
SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())


def study(block: dict[str, Any], **config: Any) -> Study:
    base = {"network": "lenet", "hardware": "cpu", "batch": 64, "storage": "made"}
    return expand(
        {
            "study": "s", "seed": 7, "convergence": [base | block],
            "hardware": {"cpu": {"device": "cpu", "nodes": 4}},
            "storage": {"made": {"path": "made", "format": "idx", "generate": 1000},
                        "text": {"path": "text", "format": "tokens"}, "random": {"format": "synthetic"},
                        "staged": {"path": "staged", "format": "files", "stage": True}},
            **config,
        },
        SCHEMA,
    )  # fmt: skip


def test_a_run_for_each_mini_batch_node_count_trial_and_seed() -> None:
    recipes = {"mine": {"like": "lars", "search": {"step_size": [0.1, 10]}, "trials": 4}}
    found = study({"batch": [32, 64], "nodes": [1, 2], "recipe": "mine", "seeds": 2}, recipes=recipes).cells_of_kind(
        "convergence"
    )
    assert len(found) == 2 * 2 * 4 * 2
    steps = dict(
        sorted((cell.trial, cell.settings["step_size"]) for cell in found if isinstance(cell, ConvergenceCell))
    )
    assert list(steps.values()) == pytest.approx([1.0, 10**0.5, 10**-0.5, 10**-0.25], rel=1e-5)
    assert {cell.seed for cell in found} == {7, 8}
    assert {cell.visits for cell in found} == {1}


def test_workers_of_a_node_are_an_axis_and_else_those_of_the_hardware() -> None:
    hardware = {"cpu": {"device": "cpu", "nodes": 4, "workers_per_node": 2}}
    found = study({"workers_per_node": [1, 2, 4]}, hardware=hardware)
    assert {cell.workers_per_node for cell in found.cells.values()} == {1, 2}
    assert [entry.reason for entry in found.excluded] == ["4 workers on a node, but hardware cpu has 2"]
    assert {cell.ranks for cell in study({"nodes": 2}, hardware=hardware).cells.values()} == {4}


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ({"batch": [64, 1000]}, "B = 1000, but storage made has 900 training samples"),
        ({"batch": [64, 63], "nodes": 2}, "batch 63 is not divisible by 2 workers"),
        ({"nodes": [1, 8]}, "8 nodes, but hardware cpu has 4"),
        ({"storage": ["made", "text"]}, "network lenet takes images, but storage text holds tokens"),
    ],
)
def test_combinations_that_cannot_run_are_left_out_with_the_reason(block: dict[str, Any], reason: str) -> None:
    found = study(block)
    assert [entry.reason for entry in found.excluded] == [reason]
    assert len(found.cells_of_kind("convergence")) == 3
    assert reason in found.plan()


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"recipe": "momentun"}, r"convergence\[0\].recipe: unknown recipe 'momentun', did you mean 'momentum'"),
        ({"validation": "mad"}, r"convergence\[0\].validation: unknown storage 'mad', did you mean 'made'"),
        ({"sync": "asynchronous", "recipe": ["sgd", "lars"]}, r"convergence\[0\].recipe: lars updates by lars, whose"),
        ({"sync": "none"}, r"convergence\[0\].sync: preset none does not communicate"),
        ({"sync": "zero-1"}, r"convergence\[0\].sync: preset zero-1 shards weights or the optimiser"),
        ({"sync": "one-weird-trick"}, r"convergence\[0\].sync: preset one-weird-trick splits the outputs of layers"),
        ({"sync": "pipeline"}, r"convergence\[0\].sync: preset pipeline cuts the network into stages"),
        ({"storage": ["made", "staged"]}, r"convergence\[0\].storage: storage staged is staged"),
        ({"validation": "random"}, r"convergence\[0\].validation: storage random holds random numbers"),
        ({"target": 2}, r"convergence\[0\].target"),
        ({"batch": list(range(1, 900)), "seeds": 200}, r"convergence\[0\]: 179,800 runs; at most 100,000"),
    ],
)
def test_wrong_entries_are_named(block: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study(block)
