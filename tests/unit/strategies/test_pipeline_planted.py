"""A pipeline whose layers sleep, through the real worker to the tables: its bubble is found, and predicted from one
worker alone."""

from dataclasses import replace

import pandas as pd
import pytest
from planted_training import cuts_of_planted, measured, near
from visiting_cells import collectives, train

from stallpoint.models.fitting import fit
from stallpoint.strategies.options import ALL_REDUCE, SEND_RECEIVE
from stallpoint.strategies.presets import PRESETS, to_values

pytestmark = pytest.mark.ranks

EACH, LAYERS, SAMPLES, MICRO_BATCHES, STAGES = 3.0, 4, 8, 2, 2
"""Virtual s for a sample in a layer's forward pass, and in its backward pass."""
NETWORK = f"""
import torch
from torch import nn
from virtual_time import sleep


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, values):
        sleep({EACH} * len(values))
        return values.clone()

    @staticmethod
    def backward(context, gradients):
        sleep({EACH} * len(gradients))
        return gradients


class Layer(nn.Linear):
    def forward(self, values):
        return Slow.apply(super().forward(values))


def slow():
    return nn.Sequential(nn.Flatten(), *(Layer(192, 192) for _ in range({LAYERS})))


class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(192, 192), nn.Linear(192, 192))

    def forward(self, images):
        values = images.flatten(1)
        return values + self.inner(values)


def around():
    return Around()
"""
MORE = 8
"""Micro-batches that would help."""
TABLES = ("critical_path", "predictions", "causes", "remedies")
STAGE = 2 * EACH * LAYERS * SAMPLES / STAGES
"""What a stage computes in an iteration, s."""
BUBBLE = STAGE * (STAGES - 1) / MICRO_BATCHES


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Model tables of a pipeline of two stages, and of one worker alone at B and at a micro-batch."""
    place = tmp_path_factory.mktemp("planted")
    own = {"build": "planted.py:slow", "image_size": 8}
    one = replace(
        train(network="slow"), own_network=own, iterations=2, warmup=1, batch=SAMPLES, worker_batch=SAMPLES,
        sync="pipeline", preset=to_values(replace(PRESETS["pipeline"].preset, micro_batches=MICRO_BATCHES)),
    )  # fmt: skip
    alone = replace(train(network="slow", scaling="compute"), own_network=own, iterations=2, warmup=1, sync="none")
    around = replace(one, network="around", own_network={**own, "build": "planted.py:around"})
    cells = [
        one,
        replace(around, nodes=STAGES, worker_batch=SAMPLES // STAGES),
        replace(one, nodes=STAGES, worker_batch=SAMPLES // STAGES),
        *(replace(alone, batch=part, worker_batch=part) for part in (SAMPLES // MICRO_BATCHES, SAMPLES // MORE)),
        replace(collectives(STAGES), message_bytes=[1024, 16384], operations=[ALL_REDUCE, SEND_RECEIVE]),
    ]  # fmt: skip
    found = measured(cells, place, NETWORK, samples=16)
    tables = fit(found, nodes=[], cuts={"slow": cuts_of_planted("slow", own, place)})
    return {"runs": found["runs"], **{name: tables[name] for name in TABLES}}


def test_the_bubble_is_measured_apart_and_has_its_name(fitted: dict[str, pd.DataFrame]) -> None:
    path = fitted["critical_path"].query(f"nodes == {STAGES}").set_index("cause")
    assert set(path["basis"]) == {"measured"}
    assert near(path.loc["pipeline bubble", ["seconds_low", "seconds_high"]], BUBBLE)
    assert path.loc["communication", "seconds"].sum() < BUBBLE / 2, "what is waited for is not what is sent"


def test_an_iteration_through_stages_is_predicted_from_one_worker_alone(fitted: dict[str, pd.DataFrame]) -> None:
    (row,) = fitted["predictions"].query(f"nodes == {STAGES}").to_dict("records")
    assert row["equation"] == "pipeline"
    assert row["compute_source"] == "measured at b"
    for basis in ("predicted", "measured", "held_out"):
        assert near((row[f"{basis}_iteration_low"], row[f"{basis}_iteration_high"]), STAGE + BUBBLE)
    assert near((row["predicted_straggling"], row["predicted_straggling"]), BUBBLE)
    assert near([row["predicted_forward"] + row["predicted_backward"]] * 2, STAGE)


def test_the_bubble_is_what_keeps_it_from_scaling_and_more_micro_batches_would_help(
    fitted: dict[str, pd.DataFrame],
) -> None:
    lost = fitted["causes"].query(f"nodes == {STAGES}").set_index("cause")
    assert lost["lost"].idxmax() == "pipeline bubble"
    assert "dominant" not in set(lost["verdict"].drop("pipeline bubble"))
    (row,) = fitted["remedies"].query("changes == 'micro-batches'").to_dict("records")
    assert row["remedy"] == f"{MORE} micro-batches"
    assert near(
        (row["gain_low"] - 1, row["gain_high"] - 1), (STAGE + BUBBLE) / (STAGE + BUBBLE * MICRO_BATCHES / MORE) - 1
    )


def test_a_network_that_cannot_be_cut_is_told_in_its_record(fitted: dict[str, pd.DataFrame]) -> None:
    runs = fitted["runs"]
    whole = runs["cell"].str.contains("network~around")
    assert runs.loc[~whole, "status"].eq("ok").all()
    (reason,) = runs.loc[whole, "reason"]
    assert reason.startswith("network around cannot be cut into 2 stages: it can be cut into 1 at most: before layers")
