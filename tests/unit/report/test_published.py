"""Published tables beside ours: every difference is explained, no explanation is stale, and each one is true."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from torch import nn

from stallpoint.networks import find
from stallpoint.networks.description import describe
from stallpoint.networks.products import products
from stallpoint.records.parquet import to_arrow
from stallpoint.records.tables import CONVERGENCE_RUNS, NETWORK_LAYERS
from stallpoint_papers.published import PASSES, PROPERTIES, UNEXPLAINED, compare

ROOT = Path(__file__).parents[3]
TABLE_II = yaml.safe_load((ROOT / "resources/published/keuper-2016-table-ii.yaml").read_text())
TABLE_IV = yaml.safe_load((ROOT / "resources/published/shi-2018-table-iv.yaml").read_text())
NETWORKS = ("alexnet", "googlenet")
THEIR_SAMPLES = {"alexnet": 450_000 * 256, "googlenet": 1_000_000 * 32}


@pytest.fixture(scope="module")
def layers() -> pd.DataFrame:
    rows = [row for name in (*NETWORKS, "resnet50") for row in describe(find(name))]
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


def test_what_the_explanations_of_table_iv_say(layers: pd.DataFrame) -> None:
    learned = layers.groupby("network")["parameters"].sum()
    assert learned["googlenet"] == 13_378_280
    assert round(4 * learned["googlenet"] / 1e6, 1) == 53.5
    last = layers.query("network == 'resnet50' and layer_type == 'fully-connected'")["parameters"].sum()
    assert (learned["resnet50"], learned["resnet50"] - last) == (25_557_032, 23_508_032)
    assert layers.query("network == 'resnet50'")["layer"].str.endswith("shortcut_conv").sum() == 4


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


# --- what the explanations say --------------------------------------------------------------------


def work(network: nn.Module) -> int:
    return sum(product.multiply_adds for product in products(network, find("alexnet").takes, 1))


def exaflop(multiply_adds: float, samples: int) -> float:
    return 2 * PASSES * multiply_adds * samples / 1e18


def published(name: str, network: str) -> float:
    return next(row[network]["published"] for row in TABLE_II["rows"] if row["property"] == name)


def test_their_alexnet_needs_the_operations_of_one_without_groups() -> None:
    ungrouped = find("alexnet").outline()
    for name in ("conv2", "conv4", "conv5"):
        conv = ungrouped.get_submodule(name)
        with torch.device("meta"):
            wide = nn.Conv2d(2 * conv.weight.shape[1], len(conv.weight), conv.kernel_size, padding=conv.padding)
        setattr(ungrouped, name, wide)
    theirs = published("ExaFLOP to convergence", "alexnet")
    assert round(exaflop(work(ungrouped), THEIR_SAMPLES["alexnet"]), 1) == theirs
    assert exaflop(work(ungrouped), THEIR_SAMPLES["alexnet"]) == pytest.approx(0.785, abs=0.0005)


def test_their_googlenet_is_trained_with_as_many_samples_as_alexnet() -> None:
    multiply_adds = find("googlenet").multiply_adds
    theirs = published("ExaFLOP to convergence", "googlenet")
    assert round(exaflop(multiply_adds, THEIR_SAMPLES["alexnet"]), 1) == theirs
    assert round(exaflop(multiply_adds, THEIR_SAMPLES["googlenet"]), 1) != theirs


@pytest.mark.parametrize(("network", "more_in_caffe", "sums"), [("alexnet", 2, 0), ("googlenet", 1, 1)])
def test_their_layers_are_caffes(layers: pd.DataFrame, network: str, more_in_caffe: int, sums: int) -> None:
    own = layers[layers["network"] == network]
    flatten = int((own["layer_type"] == "flatten").sum())
    assert len(own) - flatten - sums + more_in_caffe == published("layers", network)


def test_their_fully_connected_layers_lack_fc8_and_the_auxiliary_classifiers(layers: pd.DataFrame) -> None:
    connected = layers[layers["layer_type"] == "fully-connected"].set_index("layer")["parameters"] / 1e6
    weights = "weights in fully-connected layers [million]"
    assert round(connected["fc6"] + connected["fc7"]) == published(weights, "alexnet")
    assert round(connected["fc8"]) == 4
    assert round(connected["classifier3"]) == published(weights, "googlenet")
    auxiliary = connected[[name for name in connected.index if name.startswith(("classifier1", "classifier2"))]]
    assert len(auxiliary) == 4
    assert round(auxiliary.sum()) == 6
