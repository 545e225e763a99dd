"""After how many epochs staging or packing has paid: planted waits and times."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from visiting_cells import train

from stallpoint.base.measured import Measured, Parts, Point
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.answers import feeding
from stallpoint.models.answers.feeding import BreakEven

SAMPLES, BATCH = 1000, 50
"""Of the set, and the global mini-batch: 20 iterations make an epoch."""


def ensemble(value: float, spread: float, seed: int) -> np.ndarray[Any, Any]:
    noise = np.random.default_rng(seed).normal(0, spread, REPLICATES)
    return np.concatenate([[value], value + noise])


def point(storage: str, data_wait: float, spread: float = 1e-6) -> Measured:
    """A point whose wait for data is off by so much, s; two storages' waits have nothing to do with each other."""
    at = Point("alexnet", "cpu", storage, "strong", "wfbp", 0, BATCH, 1, 2, 2, BATCH, BATCH // 2)
    wait = ensemble(data_wait, spread, seed=len(storage))
    return Measured(at, (f"cell of {storage}",), Parts(iteration_time=2 * wait, data_wait=wait))


def runs(**stage_to: str) -> pd.DataFrame:
    """Training cells on storages of one set, and where each is staged to."""
    cells = {name: replace(train(2), storage=name, stage_to=folder) for name, folder in stage_to.items()}
    return pd.DataFrame(
        {"kind": "train", "cell": f"cell of {name}", "settings": cell.to_json()} for name, cell in cells.items()
    )


def staging(*seconds: float, storage: str = "staged") -> pd.DataFrame:
    """What staging took on each node of a job."""
    return pd.DataFrame(
        {"cell": "one", "storage": storage, "hardware": "cpu", "visit": 1, "job_nodes": len(seconds), "node": place,
         "samples": SAMPLES, "seconds": taken}
        for place, taken in enumerate(seconds)
    )  # fmt: skip


NO_CONVERSION = pd.DataFrame(columns=["hardware", "storage", "source", "samples", "seconds"])


def row(shared_wait: float, staged_wait: float, spread: float = 1e-6) -> dict[str, Any]:
    points = [point("shared", shared_wait, spread), point("staged", staged_wait, spread)]
    (found,) = feeding.break_even(points, runs(shared="", staged="/disk"), staging(30.0, 40.0), NO_CONVERSION, seed=0)
    return found


def test_staging_pays_after_what_it_took_over_what_an_epoch_saves() -> None:
    found = row(shared_wait=0.5, staged_wait=0.1)
    assert (found["storage"], found["before"], found["verdict"]) == ("staged", "shared", BreakEven.PAYS)
    assert found["remedy"] == "staging"
    assert found["seconds"] == pytest.approx(40.0), "on the slowest node"
    assert found["wait_before"] == pytest.approx(20 * 0.5)
    assert found["wait_after"] == pytest.approx(20 * 0.1)
    assert found["epochs"] == pytest.approx(40.0 / (20 * 0.4), rel=1e-3)
    assert found["epochs_low"] < found["epochs"] < found["epochs_high"]


@given(shared=st.floats(0.01, 10), staged=st.floats(0.01, 10))
def test_it_never_pays_where_the_copy_is_read_slower(shared: float, staged: float) -> None:
    found = row(max(shared, staged) + 0.001, min(shared, staged))
    assert found["verdict"] == BreakEven.PAYS
    assert found["epochs"] > 0
    found = row(min(shared, staged), max(shared, staged) + 0.001)
    assert found["verdict"] == BreakEven.NEVER
    assert np.isnan(found["epochs"])


def test_it_is_undecided_where_the_difference_may_be_none() -> None:
    points = [point("shared-storage", 0.5, spread=0.1), point("staged", 0.49, spread=0.1)]
    (found,) = feeding.break_even(
        points, runs(**{"shared-storage": "", "staged": "/disk"}), staging(30.0), NO_CONVERSION, seed=0
    )
    assert found["verdict"] == BreakEven.UNDECIDED
    assert np.isnan(found["epochs"])
    assert feeding.break_even_verdict(np.zeros(1 + REPLICATES)) == BreakEven.UNDECIDED


@pytest.mark.parametrize(
    ("stage_to", "rows"),
    [
        ({"shared": "", "staged": ""}, staging(30.0)),
        ({"shared": "/disk", "staged": "/disk"}, staging(30.0)),
        ({"shared": "", "staged": "/disk"}, staging().reindex(columns=staging(1.0).columns)),
        ({"shared": "", "staged": "/disk"}, staging(30.0, storage="other")),
    ],
    ids=["nothing staged", "both staged", "no job copied", "another set copied"],
)
def test_what_was_not_measured_is_not_said(stage_to: dict[str, str], rows: pd.DataFrame) -> None:
    points = [point("shared", 0.5), point("staged", 0.1)]
    assert feeding.break_even(points, runs(**stage_to), rows, NO_CONVERSION, seed=0) == []


def test_packing_pays_over_what_it_was_made_of_alone() -> None:
    cells = {
        "jpeg": replace(train(2), storage="jpeg", storage_path="set/jpeg"),
        "packed": replace(train(2), storage="packed", storage_path="set/raw", storage_format="raw"),
        "other": replace(train(2), storage="other", storage_path="other/jpeg"),
    }
    known = pd.DataFrame(
        {"kind": "train", "cell": f"cell of {name}", "settings": cell.to_json()} for name, cell in cells.items()
    )
    made = pd.DataFrame(
        [{"hardware": "cpu", "storage": "packed", "source": "set/./jpeg", "samples": SAMPLES, "seconds": 60.0}]
    )
    points = [point("jpeg", 0.5), point("packed", 0.2), point("other", 0.9)]
    (found,) = feeding.break_even(points, known, staging().reindex(columns=staging(1.0).columns), made, seed=0)
    assert (found["storage"], found["before"], found["remedy"], found["verdict"]) == (
        "packed",
        "jpeg",
        "packing",
        BreakEven.PAYS,
    )
    assert found["epochs"] == pytest.approx(60.0 / (20 * 0.3), rel=1e-3)
