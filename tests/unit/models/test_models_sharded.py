"""Predictions of accumulation and sharding on a cluster whose every time is given."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from stallpoint.base.measured import Measured, Parts, Point
from stallpoint.base.priors import ADDITION_SHARE, GRADIENT_ADDITION
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.iteration.cluster import Cluster
from stallpoint.models.iteration.prediction import DagModel
from stallpoint.models.iteration.scenarios import PublishedLink, Scenario, changed
from stallpoint.models.terms.communication import MutualSlowdown, all_reduce_parts, nominal
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.training_cells import Layers
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE, OPERATIONS
from stallpoint.strategies.presets import PRESETS, Preset, with_options

NAMES = ("block1.fc", "block2.fc", "block3.fc", "block4.fc")
BYTES, HANDED_ON = 4_000_000, 100_000
"""Of the gradients of a layer, and of what it hands on for a sample."""
FORWARD, BACKWARD, UPDATE = 0.02, 0.03, 0.04
ALPHA, SPEED = 1e-3, 1e8
DDP, FSDP = PRESETS["ddp"].preset, PRESETS["fsdp"].preset


class Computing:
    """One worker takes `FORWARD` and `BACKWARD` for each sample of each layer, and `UPDATE` for all weights."""

    layers: ClassVar = {"net": Layers(NAMES, np.array(["fully-connected"] * 4), np.full(4, BYTES))}

    def times(
        self, network: str, hardware: str, batch: int, *, prefetch: int, without: Collection[str] = ()
    ) -> Times | None:
        one = np.ones(1 + REPLICATES)
        forward, backward = (np.outer(one, np.full(4, each * batch)) for each in (FORWARD, BACKWARD))
        passes = (4 * FORWARD * batch * one, 4 * BACKWARD * batch * one)
        return Times(forward, backward, *passes, 0 * one, UPDATE * one, "measured at b")


class NoData:
    def seconds(self, *_: Any, **__: Any) -> Any:
        return np.zeros(1 + REPLICATES)

    def sharing_link(self, _measured: Any, isolated: Any, *_: Any) -> Any:
        return isolated, 1.0


def shares_of(size: float, ranks: int) -> float:
    """An all-gather or a reduce-scatter of so many bytes: half of a ring."""
    return (ranks - 1) * (ALPHA + size / ranks / SPEED)


def shares(ranks: int) -> float:
    """Of a block's weights."""
    return shares_of(BYTES, ranks)


def predicted(preset: Preset, nodes: int, workers: int = 1, batch: int = 8, **known: Any) -> Parts:
    """Weak scaling with `batch` samples on each worker; what else is `known` of the cluster."""
    point = place(nodes, workers, batch)
    base = Measured(point, (), Parts.measured(**dict.fromkeys(TIMES, np.ones(1 + REPLICATES))))
    return model(preset, **known).curve([base], [], held_out=False).predicted[nodes * workers].parts


def place(nodes: int, workers: int = 1, batch: int = 8) -> Point:
    ranks = nodes * workers
    return Point("net", "cpu", "disk", "weak", "mine", 1, batch, workers, nodes, ranks, batch * ranks, batch)


def model(preset: Preset, while_computing: MutualSlowdown | None = None, **known: Any) -> DagModel:
    """What it knows is given; `while_computing` is of all that is sent between nodes."""
    links = {}
    for operation in OPERATIONS:
        law = "ring" if operation == ALL_REDUCE else operation
        between = replace(nominal(law, latency=ALPHA, bandwidth=SPEED), while_computing=while_computing)
        inside = nominal(law, latency=0.0, bandwidth=10 * SPEED).over_nodes
        assert inside is not None
        links["cpu", "torch", "library", operation] = replace(between, fits_by_placement={(1, 2): inside})
        links["cpu", "mpi", "library", operation] = between
    cuts = {"net": Cuts((1,) * 4, (*[HANDED_ON] * 3, None))}
    return DagModel(Cluster(Computing(), links, NoData(), {"mine": preset}, cuts=cuts, **known))


TIMES = (
    "iteration_time", "data_wait", "host_to_device", "forward", "backward", "communication", "exposed_communication",
    "update", "matrix", "fully_connected",
)  # fmt: skip


def test_parts_of_a_mini_batch_are_computed_one_after_the_other_and_sent_once() -> None:
    whole, parts = predicted(DDP, 4), predicted(replace(DDP, accumulate=4), 4)
    assert parts.forward[0] == pytest.approx(whole.forward[0])
    added = parts.backward - whole.backward
    assert added[0] == pytest.approx(3 * ADDITION_SHARE * UPDATE), "gradients of three more mini-batches"
    assert np.std(np.log(added[1:])) == pytest.approx(GRADIENT_ADDITION.deviation, rel=0.2), "nothing measured it"
    # All gradients are ready in the last part's backward pass, a quarter of the whole: less of it hides messages.
    assert parts.communication[0] == pytest.approx(whole.communication[0])
    assert parts.iteration_time[0] >= whole.iteration_time[0] + added[0] - 1e-9
    rates = {"cpu": np.full(1 + REPLICATES, 1e9)}
    known = predicted(replace(DDP, accumulate=4), 4, memory_rates=rates)
    assert (known.backward - whole.backward)[:9] == pytest.approx(3 * 3 * 4 * BYTES / 1e9), "read, read, written"
    assert np.isnan(predicted(replace(DDP, accumulate=3), 4).iteration_time[0]), "it does not divide 8 samples"


def test_blocks_that_keep_nothing_do_their_forward_pass_twice() -> None:
    whole, twice = predicted(FSDP, 4), predicted(replace(FSDP, activation_checkpointing=True), 4)
    assert twice.forward[0] == pytest.approx(whole.forward[0])
    assert twice.backward[0] == pytest.approx(whole.backward[0] + 8 * 4 * FORWARD)


def test_another_link_carries_whatever_a_preset_sends() -> None:
    scenario = Scenario(link=PublishedLink(latency=ALPHA, bandwidth=SPEED))
    presets = {name: PRESETS[name].preset for name in ("wfbp", "fsdp", "none")}
    known = changed(Cluster(Computing(), {}, NoData(), presets), scenario, "cpu").communication
    assert {scheme[1:] for scheme in known} == {
        ("mpi", "library", "all-reduce"), ("torch", "library", "all-gather"), ("torch", "library", "reduce-scatter"),
    }  # fmt: skip
    gather = known["cpu", "torch", "library", "all-gather"].at(4, 1)
    assert gather is not None
    assert sum(part[0, 0] for part in all_reduce_parts(gather, 4, [BYTES])) == pytest.approx(shares(4))


def test_a_sharded_optimiser_updates_a_share_and_gathers_all_weights() -> None:
    whole, sharded = predicted(DDP, 4), predicted(replace(DDP, sharding="optimiser"), 4)
    gather = 3 * (ALPHA + 4 * BYTES / 4 / SPEED)
    assert sharded.update[0] == pytest.approx(UPDATE / 4)
    assert sharded.exposed_communication[0] == pytest.approx(whole.exposed_communication[0] + gather)
    assert sharded.iteration_time[0] == pytest.approx(whole.iteration_time[0] + gather - UPDATE * 3 / 4)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_blocks_are_gathered_ahead_and_each_waits_for_its_reduce_scatter(parts: int) -> None:
    one = predicted(replace(FSDP, accumulate=parts), 4)
    computing = 8 * 4 * (FORWARD + BACKWARD)
    exposed = 2 * parts * shares(4) + 4 * shares(4)
    assert shares(4) < FORWARD * 8 / parts, "hidden behind a block's pass"
    assert one.iteration_time[0] == pytest.approx(computing + exposed + UPDATE / 4)
    assert one.exposed_communication[0] == pytest.approx(exposed)
    assert one.communication[0] == pytest.approx(4 * (2 * parts + 1) * shares(4))


def test_hybrid_sharding_stays_in_the_node_but_for_an_all_reduce() -> None:
    one = predicted(PRESETS["hsdp"].preset, 4, workers=2)
    inside = BYTES / 2 / (10 * SPEED)
    between = 2 * 3 * (ALPHA + BYTES / 4 / SPEED)
    assert one.exposed_communication[0] == pytest.approx(2 * inside + 4 * (inside + between))
    assert one.update[0] == pytest.approx(UPDATE / 2)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_what_gathers_take_from_computing_is_not_learned_a_second_time(parts: int) -> None:
    """Contention is what training takes beyond that: of each pass, for all blocks but the first."""
    nothing, work = (nominal(ALL_GATHER, latency=seconds, bandwidth=np.inf) for seconds in (0.0, 2e-3))
    taking = model(replace(FSDP, accumulate=parts), MutualSlowdown(longer=nothing, work=work))
    found = taking.isolated(place(2), [[3], [2], [1], [0]])
    assert found is not None
    assert found.forward[0] == pytest.approx(8 * 4 * FORWARD + 3 * parts * 2e-3)
    assert found.backward[0] == pytest.approx(8 * 4 * BACKWARD + 3 * parts * 2e-3)
    without = model(replace(FSDP, accumulate=parts)).isolated(place(2), [[3], [2], [1], [0]])
    assert without is not None
    assert (without.forward[0], without.backward[0]) == pytest.approx((8 * 4 * FORWARD, 8 * 4 * BACKWARD))


@pytest.mark.parametrize("workers", [2, 4])
def test_a_message_has_the_rounds_of_those_who_send_it(workers: int) -> None:
    hybrid = model(PRESETS["hsdp"].preset).isolated(place(4, workers), [[3], [2], [1], [0]])
    assert hybrid is not None
    assert hybrid.collectives.rounds == np.log2(workers) + np.log2(4), "among those of a node, then between nodes"
    whole = model(FSDP).isolated(place(4, workers), [[3], [2], [1], [0]])
    assert whole is not None
    assert whole.collectives.rounds == np.log2(4 * workers)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 8), (4, 4)])
def test_equal_stages_have_the_bubble_of_gpipe_and_wait_for_each_message_on_the_way(
    stages: int, micro_batches: int
) -> None:
    one = predicted(with_options(PRESETS["pipeline"].preset, {"micro_batches": micro_batches}), stages)
    size = 8 * stages // micro_batches
    message = ALPHA + HANDED_ON * size / SPEED
    computing = size * 4 * (FORWARD + BACKWARD) / stages
    slots = micro_batches + stages - 1
    # While the pipeline is full every stage but the first (backward: but the last) receives before it computes.
    received = 2 * slots * message - 2 * message
    assert one.iteration_time[0] == pytest.approx(slots * computing + received + UPDATE / stages)
    assert one.forward[0] + one.backward[0] == pytest.approx(micro_batches * computing)
    assert one.update[0] == pytest.approx(UPDATE / stages)
    assert one.exposed_communication[0] == pytest.approx(micro_batches * message)
    rest = one.iteration_time - one.forward - one.backward - one.update - one.exposed_communication
    assert one.straggling[0] == pytest.approx(rest[0])


def test_a_pipeline_of_more_stages_than_layers_is_not_predicted() -> None:
    assert np.isnan(predicted(PRESETS["pipeline"].preset, 8).iteration_time).all()
