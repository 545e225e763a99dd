"""Split layers that sleep, through the real worker to the tables: an iteration is predicted from one worker alone."""

from dataclasses import replace

import pandas as pd
import pytest
from planted_training import cuts_of_planted, measured, near
from visiting_cells import collectives, train

from stallpoint.models.fitting import fit
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from stallpoint.strategies.presets import PRESETS, to_values

pytestmark = pytest.mark.ranks

CONVOLUTION, SPLIT, SAMPLES, WORKERS = 1.0, 3.0, 8, 2
"""Virtual s for a sample in a layer's forward pass, and in its backward pass."""
NETWORK = f"""
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
        return Slow.apply(super().forward(values), {SPLIT} * len(self.weight) / self.out_features)


def slow():
    return nn.Sequential(Convolution(3, 4, 8, stride=8), nn.Flatten(), Layer(4, 12), nn.ReLU(), Layer(12, 10))


def plain():
    return nn.Sequential(nn.Conv2d(3, 10, 8), nn.Flatten())
"""
ITERATION = 2 * (CONVOLUTION * SAMPLES / WORKERS + 2 * SPLIT * SAMPLES / WORKERS)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Model tables of split outputs on two workers, and of one worker alone at B and at b."""
    place = tmp_path_factory.mktemp("planted")
    own = {"build": "planted.py:slow", "image_size": 8}
    one = replace(
        train(network="slow"), own_network=own, iterations=2, warmup=1, batch=SAMPLES, worker_batch=SAMPLES,
        sync="one-weird-trick", preset=to_values(PRESETS["one-weird-trick"].preset),
    )  # fmt: skip
    alone = replace(train(network="slow", scaling="compute"), own_network=own, iterations=2, warmup=1, sync="none")
    plain = replace(one, network="plain", own_network={**own, "build": "planted.py:plain"})
    b = SAMPLES // WORKERS
    cells = [
        one,
        replace(plain, nodes=WORKERS, worker_batch=b),
        replace(one, nodes=WORKERS, worker_batch=b),
        replace(alone, batch=b, worker_batch=b),
        replace(collectives(WORKERS), message_bytes=[1024, 16384], operations=[ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER]),
    ]
    found = measured(cells, place, NETWORK, samples=16)
    tables = fit(found, nodes=[], cuts={"slow": cuts_of_planted("slow", own, place)})
    return {**{name: found[name] for name in ("runs", "layers")}, "predictions": tables["predictions"]}


def test_split_layers_take_a_share_for_the_samples_of_all(fitted: dict[str, pd.DataFrame]) -> None:
    layers = fitted["layers"].query(f"nodes == {WORKERS} and layer_type == 'fully-connected' and not warmup")
    assert len(layers)
    for side in ("forward", "backward"):
        assert near([layers[side].median()] * 2, SPLIT * SAMPLES / WORKERS)


def test_an_iteration_with_split_outputs_is_predicted_from_one_worker_alone(fitted: dict[str, pd.DataFrame]) -> None:
    (row,) = fitted["predictions"].query(f"nodes == {WORKERS} and network == 'slow'").to_dict("records")
    assert (row["equation"], row["compute_source"]) == ("outputs", "measured at b")
    for basis in ("predicted", "measured", "held_out"):
        assert near((row[f"{basis}_iteration_low"], row[f"{basis}_iteration_high"]), ITERATION)
    assert near([row["predicted_forward"] + row["predicted_backward"]] * 2, ITERATION)


def test_a_network_that_has_nothing_to_split_is_told_in_its_record(fitted: dict[str, pd.DataFrame]) -> None:
    runs = fitted["runs"]
    plain = runs["cell"].str.contains("network~plain")
    assert runs.loc[~plain, "status"].eq("ok").all()
    (reason,) = runs.loc[plain, "reason"]
    assert reason == (
        "network plain has no outputs to split over workers: it has no fully-connected layer behind a convolution"
    )
