"""Networks divided over two workers, whose layers sleep, through the real worker to the tables: what is waited for is
found, and an iteration is predicted from one worker alone."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from planted_training import cuts_of_planted, measured, near
from visiting_cells import collectives, train

from stallpoint.models.fitting import fit
from stallpoint.records.tables import SENSORS
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, SEND_RECEIVE
from stallpoint.strategies.presets import PRESETS, to_values, with_options
from stallpoint.study.kinds.train_kind import TrainCell

pytestmark = pytest.mark.ranks

EACH, CONVOLUTION, LAYERS, SAMPLES, MICRO_BATCHES, WORKERS = 3.0, 1.0, 4, 8, 2, 2
"""First virtual s for a sample in a forward pass, and in a backward pass, of a linear layer and of a convolution."""
NETWORKS = f"""
from torch import autograd, nn
from virtual_time import sleep


class Slow(autograd.Function):
    @staticmethod
    def forward(context, values, seconds):
        context.seconds = seconds
        sleep(seconds * len(values))
        return values.clone()

    @staticmethod
    def backward(context, gradients):
        sleep(context.seconds * len(gradients))
        return gradients, None


class Convolution(nn.Conv2d):
    def forward(self, values):
        return Slow.apply(super().forward(values), {CONVOLUTION})


class Layer(nn.Linear):
    def forward(self, values):
        return Slow.apply(super().forward(values), {EACH} * len(self.weight) / self.out_features)


def staged():
    return nn.Sequential(nn.Flatten(), *(Layer(192, 192) for _ in range({LAYERS})))


def split():
    return nn.Sequential(Convolution(3, 4, 8, stride=8), nn.Flatten(), Layer(4, 12), nn.ReLU(), Layer(12, 10))


class around(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(192, 192), nn.Linear(192, 192))

    def forward(self, images):
        values = images.flatten(1)
        return values + self.inner(values)


def plain():
    return nn.Sequential(nn.Conv2d(3, 10, 8), nn.Flatten())
"""
MORE = 8
"""Micro-batches that would help."""
PIPELINES = {"pipeline": "pipeline", "pipeline-1f1b": "pipeline, 1F1B"}
"""Presets of staged training, and the equations that predict it."""
STAGE = 2 * EACH * LAYERS * SAMPLES / WORKERS
"""What a stage computes in an iteration, s."""
BUBBLE = STAGE * (WORKERS - 1) / MICRO_BATCHES
SPLIT = 2 * (CONVOLUTION + 2 * EACH) * SAMPLES / WORKERS
"""An iteration with split outputs, s."""


CANNOT_BE_DIVIDED = (
    "network around cannot be cut into 2 stages: it can be cut into 1 at most: before layers",
    "network plain has no outputs to split over workers: it has no fully-connected layer behind a convolution",
)


def own(network: str) -> dict[str, Any]:
    return {"build": f"planted.py:{network}", "image_size": 8}


def divided(network: str, sync: str, workers: int = WORKERS) -> TrainCell:
    preset = with_options(PRESETS[sync].preset, {"micro_batches": MICRO_BATCHES} if sync in PIPELINES else {})
    return replace(
        train(network=network), own_network=own(network), iterations=2, warmup=1, batch=SAMPLES, nodes=workers,
        worker_batch=SAMPLES // workers, sync=sync, preset=to_values(preset),
    )  # fmt: skip


def alone(network: str, b: int) -> TrainCell:
    cell = train(network=network, scaling="compute")
    return replace(cell, own_network=own(network), iterations=2, warmup=1, sync="none", batch=b, worker_batch=b)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Records and model tables on two workers, and on one alone at B, at b and at micro-batches."""
    place = tmp_path_factory.mktemp("planted")
    cells = [
        *(divided("staged", sync, workers) for sync in PIPELINES for workers in (1, WORKERS)),
        *(divided("split", "one-weird-trick", workers) for workers in (1, WORKERS)),
        divided("around", "pipeline"),
        divided("plain", "one-weird-trick"),
        *(alone("staged", SAMPLES // parts) for parts in (MICRO_BATCHES, MORE)),
        alone("split", SAMPLES // WORKERS),
        replace(
            collectives(WORKERS),
            message_bytes=[1024, 16384],
            operations=[ALL_REDUCE, SEND_RECEIVE, ALL_GATHER, REDUCE_SCATTER],
        ),
    ]
    found = measured(cells, place, NETWORKS, samples=16)
    # Time is planted here: what else the machine does disturbs none of it.
    found["iterations"] = found["iterations"].assign(**{one.name: None for one in SENSORS})
    found["visits"] = found["visits"].assign(product_before=None, product_after=None)
    cuts = {name: cuts_of_planted(name, own(name), place) for name in ("staged", "split")}
    tables = fit(found, nodes=[], cuts=cuts)
    names = ("critical_path", "predictions", "causes", "remedies")
    two = {name: tables[name][tables[name]["ranks"] == WORKERS] for name in names}
    return {"runs": found["runs"], "layers": found["layers"], **two}


@pytest.mark.parametrize("sync", PIPELINES)
def test_the_bubble_has_its_name_and_an_iteration_is_predicted_from_one_worker_alone(
    fitted: dict[str, pd.DataFrame], sync: str
) -> None:
    path = fitted["critical_path"].query(f"sync == '{sync}'").set_index("cause")
    assert set(path["basis"]) == {"measured"}
    assert near(path.loc["pipeline bubble", ["seconds_low", "seconds_high"]], BUBBLE)
    assert path.loc["communication", "seconds"].sum() < BUBBLE / 2, "what is waited for is not what is sent"
    (row,) = fitted["predictions"].query(f"sync == '{sync}'").to_dict("records")
    assert (row["equation"], row["compute_source"]) == (PIPELINES[sync], "measured at b")
    for basis in ("predicted", "measured", "held_out"):
        assert near((row[f"{basis}_iteration_low"], row[f"{basis}_iteration_high"]), STAGE + BUBBLE)
    assert near([row["predicted_straggling"]] * 2, BUBBLE)
    assert near([row["predicted_forward"] + row["predicted_backward"]] * 2, STAGE)


def test_the_bubble_is_what_keeps_it_from_scaling_and_more_micro_batches_would_help(
    fitted: dict[str, pd.DataFrame],
) -> None:
    lost = fitted["causes"].query("sync == 'pipeline'").set_index("cause")
    assert lost["lost"].idxmax() == "pipeline bubble"
    assert "dominant" not in set(lost["verdict"].drop("pipeline bubble"))
    rows = fitted["remedies"].query("sync == 'pipeline' and changes == 'micro-batches'")
    (row,) = rows.to_dict("records")
    assert row["remedy"] == f"{MORE} micro-batches"
    gain = (STAGE + BUBBLE) / (STAGE + BUBBLE * MICRO_BATCHES / MORE) - 1
    assert near((row["gain_low"] - 1, row["gain_high"] - 1), gain)


def test_split_layers_take_a_share_for_the_samples_of_all_and_are_predicted_from_one_worker_alone(
    fitted: dict[str, pd.DataFrame],
) -> None:
    layers = fitted["layers"].query(f"network == 'split' and nodes == {WORKERS} and not warmup")
    layers = layers[layers["layer_type"] == "fully-connected"]
    for side in ("forward", "backward"):
        assert near([layers[side].median()] * 2, EACH * SAMPLES / WORKERS)
    (row,) = fitted["predictions"].query("network == 'split'").to_dict("records")
    assert (row["equation"], row["compute_source"]) == ("outputs", "measured at b")
    for basis in ("predicted", "measured", "held_out"):
        assert near((row[f"{basis}_iteration_low"], row[f"{basis}_iteration_high"]), SPLIT)
    assert near([row["predicted_forward"] + row["predicted_backward"]] * 2, SPLIT)


def test_a_network_that_cannot_be_divided_is_told_in_its_record(fitted: dict[str, pd.DataFrame]) -> None:
    runs = fitted["runs"][fitted["runs"]["status"] != "ok"]
    assert [reason.startswith(why) for reason, why in zip(sorted(runs["reason"]), CANNOT_BE_DIVIDED, strict=True)] == [
        True,
        True,
    ], runs["reason"]
