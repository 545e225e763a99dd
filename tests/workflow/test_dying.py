"""Whatever a cell of any kind dies of, the study comes to its end and names it."""

import json
from collections.abc import Callable
from typing import Any

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
STUDY: dict[str, Any] = {
    "interventions": ["no-update"],
    "storage": {"digits": {"path": "digits", "format": "idx", "generate": 80}},
    "networks": {"small": {"build": "nets.py:small", "image_size": 28}},
    "commands": {
        "printing": {"run": "echo 100 images/s", "launch": "mpirun", "rate": r"(?P<rate>\d+) images/s"},
        "hanging": {"run": "sleep 600", "launch": "mpirun", "rate": r"(?P<rate>\d+) images/s", "max_minutes": 0.02},
    },
    "matrix": [
        {**BLOCK, "nodes": [1, 2]},
        {**BLOCK, "nodes": 1, "scaling": "compute"},
        {"network": ["printing", "hanging"], "hardware": "local", "nodes": 1, "batch": 4, "scaling": "weak",
         "sync": "ddp"},
    ],
    "convergence": [
        {"network": "lenet", "hardware": "local", "nodes": 2, "batch": 16, "storage": "digits", "sync": "wfbp",
         "recipe": "sgd", "max_epochs": 1, "seeds": 1},
    ],
    "copies": {"samples": 1},
    "external_tables": {},
    "claims": [],
    "iterations": 1,
    "warmup": 0,
}  # fmt: skip
ITSELF = "hanging"
"""The command that dies in any case, of its time limit."""


ALL, TABLES = "all", "results/tiny/tables/runs.parquet"


@pytest.mark.night
@pytest.mark.parametrize(
    ("way", "healthy", "target"),
    [*((way, 1, TABLES) for way in WAYS if way != "exception"), ("exception", 1, ALL), ("exception", 0, ALL)],
)
def test_cells_of_every_kind_die_and_the_study_ends(
    new_checkout: Callable[..., Checkout], monkeypatch: pytest.MonkeyPatch, way: str, healthy: int, target: str
) -> None:
    """All cells of the last repeat die; those of the first one, if there is another, are healthy."""
    repeats = healthy + 1
    convergence = [{**STUDY["convergence"][0], "seeds": repeats}]  # which has no other repeats
    checkout = new_checkout(**{**STUDY, "convergence": convergence}, repeats=repeats)
    (checkout.folder / "nets.py").write_text(NETWORKS)
    with (checkout.folder / "src/stallpoint/measure/constants.py").open("a") as constants:
        constants.write(little.source(little.QUICK))
    deaths = [f"repeat~{repeats}", f"seed~{repeats}/"]
    monkeypatch.setenv(VARIABLE, json.dumps(dict.fromkeys(deaths, way)))
    ran = checkout.snakemake(target)
    assert ran.status == 0, ran.text
    runs = read(RUNS, checkout.results("tables/runs.parquet")).to_pylist()
    assert {run["kind"] for run in runs if run["status"] == "failed" and ITSELF not in run["cell"]} == set(MEASURED)
    for run in runs:
        dies = any(part in run["cell"] for part in deaths)
        why = WAYS[way][1] if dies else "max_minutes" if ITSELF in run["cell"] else ""
        assert (run["status"], why in run["reason"]) == ("failed" if why else "ok", True), (run["cell"], run["reason"])
    if target == ALL:
        assert WAYS[way][1] in checkout.results("report.html").read_text()
