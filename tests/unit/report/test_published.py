"""Published tables beside ours: every difference is explained, and no explanation is stale."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from stallpoint.networks import find_network
from stallpoint.networks.description import describe
from stallpoint.records.parquet import to_arrow
from stallpoint.records.tables import CONVERGENCE_RUNS, NETWORK_LAYERS
from stallpoint_papers.exhibits.networks_exhibit import PROPERTIES, UNEXPLAINED, compare

ROOT = Path(__file__).parents[3]
TABLE_II = yaml.safe_load((ROOT / "resources/published/keuper-2016-table-ii.yaml").read_text())
TABLE_IV = yaml.safe_load((ROOT / "resources/published/shi-2018-table-iv.yaml").read_text())
NETWORKS = ("alexnet", "googlenet")


@pytest.fixture(scope="module")
def layers() -> pd.DataFrame:
    rows = [row for name in (*NETWORKS, "resnet50") for row in describe(find_network(name))]
    return to_arrow(NETWORK_LAYERS, rows).to_pandas()


NO_RUNS = CONVERGENCE_RUNS.schema.empty_table().to_pandas()


def comparison(layers: pd.DataFrame, batches: dict[str, list[int]], runs: pd.DataFrame = NO_RUNS) -> pd.DataFrame:
    found = pd.DataFrame(compare(TABLE_II, layers, batches, runs))
    return found.assign(ours=found["ours"].astype(float))


def test_every_cell_of_the_table_is_there(layers: pd.DataFrame) -> None:
    found = comparison(layers, {})
    assert [row["property"] for row in (*TABLE_II["rows"], *TABLE_IV["rows"])] == list(PROPERTIES)
    assert len(found) == 2 * len(TABLE_II["rows"]) == 18
    assert set(found["network"]) == set(NETWORKS), "the paper has no ResNet-50"


def test_every_difference_is_explained_and_no_explanation_is_stale(layers: pd.DataFrame) -> None:
    """With the mini-batches of the paper's study, and with others."""
    explained = {(row["property"], name) for row in TABLE_II["rows"] for name in NETWORKS if "differs" in row[name]}
    differing = set()
    for batches in ({"alexnet": [256, 512], "googlenet": [32, 256]}, {"alexnet": [16], "googlenet": [8]}):
        found = comparison(layers, batches)
        assert UNEXPLAINED not in set(found["explanation"])
        assert (found["agrees"] == (found["explanation"] == "")).all()
        differing |= set(found.loc[~found["agrees"], ["property", "network"]].itertuples(index=False, name=None))
    assert differing == explained


def test_every_difference_from_table_iv_of_shi_et_al_is_explained(layers: pd.DataFrame) -> None:
    theirs = {"alexnet": [1024], "googlenet": [64], "resnet50": [32]}
    differing = set()
    for batches in (theirs, {network: [8] for network in theirs}):
        found = pd.DataFrame(compare(TABLE_IV, layers, batches, NO_RUNS))
        assert len(found) == 9
        assert UNEXPLAINED not in set(found["explanation"])
        differing |= set(found.loc[~found["agrees"], ["property", "network"]].itertuples(index=False, name=None))
    names = ("alexnet", "googlenet", "resnet50")
    assert differing == {(row["property"], n) for row in TABLE_IV["rows"] for n in names if "differs" in row[n]}


def test_the_studys_own_mini_batches_are_compared(layers: pd.DataFrame) -> None:
    found = comparison(layers, {"alexnet": [16, 256, 1024]}).set_index(["property", "network"])
    assert found.loc[("default batch size", "alexnet"), "ours"] == 256
    assert found.loc[("default batch size", "alexnet"), "agrees"]
    assert pd.isna(found.loc[("default batch size", "googlenet"), "ours"])


def test_iterations_and_step_size_are_those_of_runs_to_convergence(layers: pd.DataFrame) -> None:
    """At the mini-batch nearest to theirs, of the runs that came to their target."""
    runs = pd.DataFrame({
        "network": "alexnet", "batch": [128, 128, 128, 1024], "steps_to_target": [300.0, 500.0, math.nan, 90.0],
        "step_size": [0.02, 0.02, 0.02, 0.16],
    })  # fmt: skip
    found = comparison(layers, {}, runs).set_index(["property", "network"])
    assert found.loc[("iterations to convergence", "alexnet"), "ours"] == 400
    assert found.loc[("default step size", "alexnet"), "ours"] == 0.02
    assert pd.isna(found.loc[("iterations to convergence", "googlenet"), "ours"])


def test_a_difference_nobody_explained_is_called_so(layers: pd.DataFrame) -> None:
    cell = {"published": 7, "digits": 1}
    table: dict[str, Any] = {"source": "a paper", "rows": [{"property": "layers", "alexnet": cell}]}
    assert [row["explanation"] for row in compare(table, layers, {}, NO_RUNS)] == [UNEXPLAINED]
