"""Predictions of split outputs on a cluster whose every time is given."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from test_models_sharded import ALPHA, SPEED, TIMES, NoData, shares_of

from stallpoint.base.measured import Measured, Parts, Point
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.iteration.cluster import Cluster
from stallpoint.models.iteration.curve_points import Predicted
from stallpoint.models.iteration.prediction import DagModel
from stallpoint.models.terms.communication import nominal
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.effects import NONE, Effects, PerMessage
from stallpoint.models.terms.training_cells import Layers
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from stallpoint.strategies.presets import PRESETS, Preset

CONV, FC = 1_000_000, 4_000_000
"""Bytes of the gradients of a layer."""
FORWARD, BACKWARD, UPDATE = 0.02, 0.03, 0.04
"""s for each sample in each layer that learns, and for all weights."""
OUTPUTS, INPUTS = 10, 1000
CUTS = Cuts((1, 1, INPUTS * OUTPUTS, OUTPUTS * 4, 0), (None,) * 5, (None, None, OUTPUTS, 4, None))
TAKEN = (4 * INPUTS, 4 * OUTPUTS, 4 * 4)
"""Bytes of a sample that the two split layers and the loss take."""
TRICK = PRESETS["one-weird-trick"].preset
SAMPLES = 8


@dataclass(frozen=True)
class Computing:
    """One worker takes `fixed` s for each layer more than for its samples; times are known at the mini-batches `of`."""

    fixed: float = 0.0
    of: Collection[int] = range(1, 100)
    layers: ClassVar = {
        "net": Layers(
            ("conv1", "conv2", "fc1", "fc2", "loss"),
            np.array(["convolution"] * 2 + ["fully-connected"] * 2 + ["loss"]),
            np.array([CONV, CONV, FC, FC, 0]),
        )
    }

    def times(
        self, network: str, hardware: str, batch: int, *, prefetch: int, without: Collection[str] = ()
    ) -> Times | None:
        if batch not in self.of:
            return None
        one, learns = np.ones(1 + REPLICATES), np.array([1.0] * 4 + [0.0])
        of_layers = [np.outer(one, learns * (each * batch + self.fixed)) for each in (FORWARD, BACKWARD)]
        passes = [layers.sum(-1) for layers in of_layers]
        return Times(of_layers[0], of_layers[1], passes[0], passes[1], 0 * one, UPDATE * one, "measured at b")


def predicted(
    preset: Preset, ranks: int, computing: Computing | None = None, cuts: Cuts | None = CUTS, learned: Effects = NONE
) -> Predicted:
    """Weak scaling with `SAMPLES` on each worker."""

    def effects(_point: Point, _held_out: bool = False) -> Effects:
        return learned

    laws = {ALL_REDUCE: "ring", ALL_GATHER: ALL_GATHER, REDUCE_SCATTER: REDUCE_SCATTER}
    links = {
        ("cpu", "mpi", "library", operation): nominal(law, latency=ALPHA, bandwidth=SPEED)
        for operation, law in laws.items()
    }
    known = {"net": cuts} if cuts else {}
    cluster = Cluster(computing or Computing(), links, NoData(), {"mine": preset}, effects, cuts=known)
    point = Point("net", "cpu", "disk", "weak", "mine", 1, SAMPLES, 1, ranks, ranks, SAMPLES * ranks, SAMPLES)
    base = Measured(point, (), Parts.measured(**dict.fromkeys(TIMES, np.ones(1 + REPLICATES))))
    return DagModel(cluster).curve([base], [], held_out=False).predicted[ranks]


def exchanged(ranks: int) -> float:
    """All-gathers and reduce-scatters of what layers take, of all samples."""
    return 2 * sum(shares_of(size * SAMPLES * ranks, ranks) for size in TAKEN)


def test_an_iteration_is_its_passes_and_what_they_gather_and_the_last_message() -> None:
    #  conv1 conv2 <fc1 gathers> fc1 <> fc2 <> loss; fc2 <> fc1 <> conv2 conv1; conv2 is sent beside conv1
    ranks = 2
    one = predicted(TRICK, ranks)
    convolutions, split = 2 * SAMPLES, 2 * SAMPLES * ranks / ranks
    message = 2 * (ALPHA + CONV / ranks / SPEED)
    assert message < SAMPLES * BACKWARD, "hidden behind the pass of the layer before"
    assert one.equation == "outputs"
    parts = one.parts
    assert parts.forward[0] == pytest.approx(FORWARD * (convolutions + split))
    assert parts.backward[0] == pytest.approx(BACKWARD * (convolutions + split))
    assert parts.exposed_communication[0] == pytest.approx(exchanged(ranks) + message)
    assert parts.communication[0] == pytest.approx(exchanged(ranks) + 2 * message)
    assert parts.update[0] == pytest.approx(UPDATE * (2 * CONV + 2 * FC / ranks) / (2 * CONV + 2 * FC))
    whole = parts.forward + parts.backward + parts.exposed_communication + parts.update
    assert parts.iteration_time[0] == pytest.approx(whole[0])
    assert one.isolated_communication[0] == pytest.approx(exchanged(ranks) + 2 * message)


def test_after_the_backward_pass_nothing_is_hidden() -> None:
    one = predicted(replace(TRICK, start="after-backward"), 2)
    messages = 2 * 2 * (ALPHA + CONV / 2 / SPEED)
    assert one.parts.exposed_communication[0] == pytest.approx(exchanged(2) + messages)


def test_what_is_gathered_is_delayed_in_each_of_its_rounds() -> None:
    after_backward = replace(TRICK, start="after-backward")
    delayed = replace(NONE, after=PerMessage(np.full(1, 1e-3), np.ones(1)))
    with_delay, without = (predicted(after_backward, 8, learned=learned).parts for learned in (delayed, NONE))
    messages, rounds = 2 * len(TAKEN) + 2, 3
    more = with_delay.exposed_communication[0] - without.exposed_communication[0]
    assert more == pytest.approx(messages * rounds * 1e-3)


def test_the_worker_with_most_outputs_is_waited_for() -> None:
    parts = predicted(TRICK, 3).parts
    of_all = 4 / 10 + 2 / 4
    assert parts.forward[0] == pytest.approx(FORWARD * (2 * SAMPLES + of_all * 3 * SAMPLES))
    assert parts.update[0] == pytest.approx(UPDATE * (2 * CONV + of_all * FC) / (2 * CONV + 2 * FC))


@pytest.mark.parametrize("known", [True, False])
def test_a_layer_s_share_is_of_its_time_with_all_samples_or_grows_with_them(known: bool) -> None:
    computing = Computing(fixed=0.1, of=(8, 16) if known else (8,))
    parts = predicted(TRICK, 2, computing).parts
    split = (16 * FORWARD + 0.1) / 2 if known else 8 * FORWARD + 0.1
    assert parts.forward[0] == pytest.approx(2 * (8 * FORWARD + 0.1) + 2 * split)


def test_one_worker_has_nothing_to_split() -> None:
    alone, plain = (predicted(preset, 1).parts for preset in (TRICK, PRESETS["wfbp"].preset))
    assert alone.iteration_time == pytest.approx(plain.iteration_time)
    assert alone.update == pytest.approx(plain.update)


@pytest.mark.parametrize("cuts", [None, Cuts((1,) * 5, (None,) * 5, (None,) * 5)])
def test_a_network_without_layers_to_split_is_not_predicted(cuts: Cuts | None) -> None:
    one = predicted(TRICK, 2, cuts=cuts)
    assert one.compute_source == "preset not predicted"
    assert np.isnan(one.parts.iteration_time).all()
    assert not np.isnan(predicted(TRICK, 1, cuts=cuts).parts.iteration_time).any()
