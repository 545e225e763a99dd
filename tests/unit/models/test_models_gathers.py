"""All-gathers of sharded weights: what training says of them, and what is learned from it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from stallpoint.base.frames import Columns
from stallpoint.base.lagging import is_waited_for
from stallpoint.base.measured import Point
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.terms.contention import CalibrationPoint, gathering
from stallpoint.models.terms.effects import CollectiveTimes, CoRunCost, IsolatedTimes
from stallpoint.models.terms.observed import BucketTimes, Observed, Sending, observe
from stallpoint.records.tables import PHASES
from stallpoint.strategies.presets import PRESETS

RANDOM = np.random.default_rng(0)


def frames(gathers: list[list[float]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Four iterations of a network of two layers, each a message; seconds of the gather of each layer on each rank."""
    steps = [(step, rank) for step in range(4) for rank in range(len(gathers))]
    iterations = pd.DataFrame(steps, columns=["iteration", "rank"])
    iterations = iterations.assign(
        cell="one", repeat=1, visit=1, iteration_time=1.0, communication=0.2, **dict.fromkeys(PHASES, 0.1)
    )
    rows = [(step, rank, layer, gathers[rank][layer]) for step, rank in steps for layer in (0, 1)]
    layers = pd.DataFrame(rows, columns=["iteration", "rank", "layer_index", "gather_end"])
    layers["bucket"] = 1 - layers["layer_index"]
    layers = layers.assign(gradient_bytes=8, bucket_bytes=4)
    return iterations, layers.assign(gather_start=0.0, all_reduce_start=0.4, all_reduce_end=0.5)


def arrays(frame: pd.DataFrame) -> Columns:
    return {str(name): values.to_numpy() for name, values in frame.items()}


def sending(iterations: pd.DataFrame, layers: pd.DataFrame) -> Sending | None:
    messages = BucketTimes(arrays(iterations), is_waited_for(iterations))
    messages.add(arrays(layers))
    return messages.sending()


def test_a_gather_is_that_of_the_rank_that_waits_least_in_the_order_of_sending() -> None:
    found = sending(*frames([[0.3, 0.2], [0.1, 0.05]]))
    assert found is not None
    assert observe([found], RANDOM).gathers[0] == pytest.approx([0.05, 0.1])


def test_training_that_shards_nothing_has_none() -> None:
    found = sending(*frames([[np.nan, np.nan]] * 2))
    assert found is not None
    assert observe([found], RANDOM).gathers.shape == (1 + REPLICATES, 0)


def seen(factor: float, co_run: CoRunCost | None) -> CalibrationPoint:
    """Training whose gathers take `factor` times what is known of them, 10 and 20 ms on idle ranks."""
    isolated = np.tile([0.01, 0.02], (1 + REPLICATES, 1))
    gathered = CollectiveTimes(0 * isolated, isolated, 1, co_run)
    one = np.ones(1 + REPLICATES)
    found = sending(*frames([list(factor * gathered.co_running[0, ::-1])] * 2))
    assert found is not None
    observed: Observed = observe([found], RANDOM)
    times = IsolatedTimes(one, one, one, one, one, gathered, gathered)
    point = Point("net", "cpu", "disk", "weak", "fsdp", 1, 8, 1, 2, 2, 16, 8)
    return CalibrationPoint(point, PRESETS["fsdp"].preset, observed, times, is_starving=False)


@pytest.mark.parametrize("longer", [0.0, 0.03])
def test_how_much_longer_gathers_take_in_training_is_learned_from_gathers(longer: float) -> None:
    cost = np.full((1 + REPLICATES, 2), longer)
    points = [seen(2.0, CoRunCost(cost, 0 * cost)), seen(2.0, None)]
    learned = gathering(points, RANDOM)
    assert learned is not None
    assert learned.share[0] == pytest.approx(2.0, rel=0.1)
    assert not learned.each.any(), "what was measured has all delays"


def test_where_no_training_gathers_nothing_is_learned() -> None:
    one = seen(2.0, None)
    assert gathering([replace(one, isolated=replace(one.isolated, gathered=None))], RANDOM) is None
    assert gathering([], RANDOM) is None
