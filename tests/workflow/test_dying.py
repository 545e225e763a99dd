"""Whatever a cell of any kind dies of, the study comes to its end and names it."""

import json
from collections.abc import Callable

import little
import pytest
from checkout import Checkout
from dying import VARIABLE, WAYS

from stallpoint.records.parquet import read
from stallpoint.records.tables import RUNS
from stallpoint.study.kinds import MEASURED

NETWORKS = """
from torch import nn


def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 28 * 28, 10))
"""
BLOCK = {"network": "small", "hardware": "local", "batch": 4, "storage": "digits", "scaling": "strong", "sync": "wfbp"}
STUDY = {
    "interventions": ["no-communication"],
    "storage": {"digits": {"path": "digits", "format": "idx", "generate": 80}},
    "networks": {"small": {"build": "nets.py:small", "image_size": 28}},
    "commands": {
        "printing": {"run": "echo 100 images/s", "launch": "mpirun", "rate": r"(?P<rate>\d+) images/s"},
        "hanging": {"run": "sleep 600", "launch": "mpirun", "rate": r"(?P<rate>\d+) images/s", "max_minutes": 0.02},
    },
    "matrix": [
        {**BLOCK, "nodes": [1, 2]},
        {**BLOCK, "nodes": 1, "scaling": "compute"},
        {
            "network": ["printing", "hanging"],
            "hardware": "local",
            "nodes": 1,
            "batch": 4,
            "scaling": "weak",
            "sync": "ddp",
        },
    ],
    "convergence": [
        {
            "network": "lenet",
            "hardware": "local",
            "nodes": 2,
            "batch": 16,
            "storage": "digits",
            "sync": "wfbp",
            "recipe": "sgd",
            "max_epochs": 1,
            "seeds": 1,
        },
    ],
    "copies": {"samples": 1},
    "external_tables": {},
    "claims": [],
    "iterations": 1,
    "warmup": 0,
}
ITSELF = "hanging"
"""The command that dies in each repeat, of its time limit."""


@pytest.mark.night
@pytest.mark.parametrize("healthy", [1, 0])
def test_every_kind_of_cell_dies_in_every_way_and_the_study_ends(
    new_checkout: Callable[..., Checkout], monkeypatch: pytest.MonkeyPatch, healthy: int
) -> None:
    """The first repeat is healthy, or nothing is; in each other one all cells die."""
    checkout = new_checkout(**STUDY, repeats=healthy + len(WAYS))
    (checkout.folder / "nets.py").write_text(NETWORKS)
    with (checkout.folder / "src/stallpoint/measure/constants.py").open("a") as constants:
        constants.write(little.source(little.QUICK))
    deaths = {f"repeat~{1 + healthy + number}": way for number, way in enumerate(WAYS)}
    monkeypatch.setenv(VARIABLE, json.dumps(deaths))
    ran = checkout.snakemake()
    assert ran.status == 0, ran.text
    runs = read(RUNS, checkout.results("tables/runs.parquet")).to_pylist()
    assert {run["kind"] for run in runs} == set(MEASURED)
    for run in runs:
        way = deaths.get(f"repeat~{run['repeat']}")
        why = "max_minutes" if ITSELF in run["cell"] and not way else WAYS[way][1] if way else ""
        assert (run["status"], why in run["reason"]) == ("failed" if why else "ok", True), (run["cell"], run["reason"])
    report = checkout.results("report.html").read_text()
    assert "RuntimeError: planted" in report
