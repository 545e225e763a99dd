"""The 1F1B pipeline beside GPipe's: what it learns, in which order, how long it waits and what it keeps."""

from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_training import cuts_of_planted, measured, near
from resident_ranks import Ranks
from small_pipeline import Trained, train, trains_as_whole
from test_pipeline_planted import EACH, LAYERS, NETWORK, SAMPLES, STAGES
from visiting_cells import collectives
from visiting_cells import train as cell

from stallpoint.models.answers.fits import Memory
from stallpoint.models.base.measured import Point
from stallpoint.models.base.statistics import REPLICATES
from stallpoint.models.fitting import fit
from stallpoint.models.taskgraph import StageCosts, pipeline_tasks, schedule
from stallpoint.models.terms.peaks import Peaks
from stallpoint.models.terms.training_cells import Layers
from stallpoint.records.tables import PHASES
from stallpoint.strategies.families.one_forward_one_backward_family import OneForwardOneBackward
from stallpoint.strategies.families.pipeline_family import BACKWARD, FORWARD
from stallpoint.strategies.options import ALL_REDUCE, SEND_RECEIVE
from stallpoint.strategies.presets import PRESETS, Preset, to_values

NAME = "pipeline-1f1b"
SECONDS, COUNTS = st.floats(0.1, 5), st.integers(1, 8)
MICRO_BATCHES = 4


def preset(micro_batches: int, name: str = NAME) -> Preset:
    return replace(PRESETS[name].preset, micro_batches=micro_batches)


def orders(stages: int, micro_batches: int) -> list[list[tuple[str, int]]]:
    """The turns of each stage."""
    strategy = preset(micro_batches).strategy
    assert isinstance(strategy, OneForwardOneBackward)
    return [list(strategy.schedule(stage, stages)) for stage in range(1, stages + 1)]


@pytest.fixture(scope="module")
def trained(ranks: Ranks) -> dict[int, list[Trained]]:
    """What each rank saw of training through 1, 2 and 3 stages."""
    return {stages: ranks(train, NAME, count=stages) for stages in (1, 2, 3)}


@pytest.mark.ranks
@pytest.mark.parametrize("stages", [2, 3])
def test_stages_train_as_the_whole_network_does(trained: dict[int, list[Trained]], stages: int) -> None:
    trains_as_whole(trained[1], trained[stages], rtol=1e-5)


@pytest.mark.ranks
@pytest.mark.parametrize("stages", [2, 3])
def test_passes_in_turn_are_told_apart_from_each_other_and_from_waiting(
    trained: dict[int, list[Trained]], stages: int
) -> None:
    for rank in trained[stages]:
        for phases, columns in zip(rank.phases, rank.layers, strict=True):
            assert phases["iteration_time"] - sum(phases[name] for name in PHASES) > 0, "the bubble"
            for kind in ("forward", "backward"):
                assert 0 < sum(columns[kind]) <= phases[kind] + 1e-9
            computed = [[bool(seconds) for seconds in columns[kind]] for kind in ("forward", "backward")]
            assert computed[0] == computed[1], "layers of other stages take nothing"


@given(COUNTS, COUNTS)
def test_no_stage_has_more_micro_batches_under_way_than_stages_from_it_to_the_last(stages: int, count: int) -> None:
    for stage, passes in enumerate(orders(stages, count), 1):
        under_way = np.cumsum([1 if kind == FORWARD else -1 for kind, _ in passes])
        assert under_way.max() == min(stages - stage + 1, count)
        for kind in (FORWARD, BACKWARD):
            assert [part for one, part in passes if one == kind] == list(range(1, count + 1))
    assert preset(count).strategy.kept((stages, 1)) == pytest.approx(min(stages, count) / count if stages > 1 else 1)


@given(COUNTS, COUNTS)
def test_stages_never_wait_for_each_other_without_end(stages: int, count: int) -> None:
    """Not even where a message arrives when it is asked for, and a stage sends one after the other."""
    order: dict[tuple[object, ...], set[tuple[object, ...]]] = {}
    for stage, passes in enumerate(orders(stages, count), 1):
        passed: tuple[object, ...] | None = None
        sending: tuple[object, ...] | None = None
        for kind, part in passes:
            sender, receiver = (stage - 1, stage + 1) if kind == FORWARD else (stage + 1, stage - 1)
            here, arrives, leaves = (kind, part, stage), ("from", kind, part, sender), ("from", kind, part, stage)
            order.setdefault(here, set())
            if 1 <= sender <= stages:
                order[here].add(arrives)
                order.setdefault(arrives, set()).update({passed} if passed else set())
            order[here].update({passed} if passed else set())
            if 1 <= receiver <= stages:
                order.setdefault(leaves, set()).update({here, *([sending] if sending else [])})
                sending = leaves
            passed = here
    assert len(list(TopologicalSorter(order).static_order())) == len(order), "no circle"


def iteration(stages: list[StageCosts], one: Preset) -> float:
    """Seconds of an iteration in the long run."""
    ends = schedule(pipeline_tasks(0.0, 0.0, stages, one, prefetch=True, iterations=3)).end
    return float(ends["update of 2"] - ends["update of 1"])


@given(st.integers(1, 6), COUNTS, SECONDS, SECONDS)
def test_the_bubble_of_equal_stages_is_that_of_gpipe(stages: int, count: int, f: float, b: float) -> None:
    seconds = iteration([StageCosts(f, b, 0.0)] * stages, preset(count))
    assert 1 - count * (f + b) / seconds == pytest.approx((stages - 1) / (count + stages - 1))
    assert seconds == pytest.approx(iteration([StageCosts(f, b, 0.0)] * stages, preset(count, "pipeline")))


def test_a_stage_waits_for_what_it_receives() -> None:
    #  time     0   2 3 4 5   8     11 12 14 15
    #  stage 1  [f1][f2]      <g>[b1 ]    <g>[b2 ][u]
    #  stage 2      <a>[f1][b1   ]<a>[f2][b2   ]
    first, second = StageCosts(2, 3, 1, gradients=1), StageCosts(2, 3, 1, activations=1)
    assert iteration([first, second], preset(2)) == 2 + 1 + (2 + 3) + 1 + (2 + 3) + 1 + 3 + 1


def test_fewer_activations_are_kept_than_by_gpipe() -> None:
    """Memory of 1 GB and 10 MB for each sample, and no weights to speak of."""
    batches, one = [4, 16], np.ones(1 + REPLICATES)
    alone = Peaks(
        ("net", "cpu", 1, "none", 0, 1), "host", batches, np.outer(one, [1e9 + 1e7 * b for b in batches]),
        [dict.fromkeys(("weights", "gradients", "optimiser"), 0.0)], (), None, one,
    )  # fmt: skip
    point = Point("net", "cpu", "disk", "weak", "mine", 0, 16, 1, 2, 2, 32, 16)
    layers = {"net": Layers(("fc",), np.array(["fully-connected"]), np.array([4]))}
    frame = pd.DataFrame(columns=["hardware", "ranks", "nodes", "cell", "available_memory"])
    for name, samples in {"pipeline": 16, NAME: 16 * 2 / 8}.items():
        memory = Memory([alone], [], layers, {"mine": preset(8, name)}, frame, frame)
        assert memory.held_out(point).peak[0] == pytest.approx(1e9 + 1e7 * samples)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Model tables of two stages whose layers sleep, by both schedules, and of one worker alone."""
    place: Path = tmp_path_factory.mktemp("planted")
    own = {"build": "planted.py:slow", "image_size": 8}
    one = replace(
        cell(network="slow"), own_network=own, iterations=2, warmup=1, nodes=STAGES, batch=SAMPLES,
        worker_batch=SAMPLES // STAGES,
    )  # fmt: skip
    part = SAMPLES // MICRO_BATCHES
    alone = replace(
        cell(network="slow", scaling="compute"), own_network=own, iterations=2, warmup=1, sync="none", batch=part,
        worker_batch=part,
    )  # fmt: skip
    cells = [
        *(
            replace(at, sync=name, preset=to_values(preset(MICRO_BATCHES, name)))
            for name in ("pipeline", NAME)
            for at in (one, replace(one, nodes=1, worker_batch=SAMPLES))
        ),
        alone,
        replace(collectives(STAGES), message_bytes=[1024, 16384], operations=[ALL_REDUCE, SEND_RECEIVE]),
    ]
    found = measured(cells, place, NETWORK, samples=16)
    tables = fit(found, nodes=[], cuts={"slow": cuts_of_planted("slow", own, place)})
    return {name: tables[name].query(f"nodes == {STAGES}") for name in ("critical_path", "predictions")}


@pytest.mark.ranks
def test_its_bubble_is_measured_and_predicted_beside_that_of_gpipe(fitted: dict[str, pd.DataFrame]) -> None:
    stage = 2 * EACH * LAYERS * SAMPLES / STAGES
    bubble = stage * (STAGES - 1) / MICRO_BATCHES
    for name, equation in {"pipeline": "pipeline", NAME: "pipeline, 1F1B"}.items():
        path = fitted["critical_path"].query(f"sync == '{name}'").set_index("cause")
        assert set(path["basis"]) == {"measured"}
        assert near(path.loc["pipeline bubble", ["seconds_low", "seconds_high"]], bubble)
        (row,) = fitted["predictions"].query(f"sync == '{name}'").to_dict("records")
        assert row["equation"] == equation
        assert near((row["predicted_straggling"], row["predicted_straggling"]), bubble)
        for basis in ("predicted", "measured"):
            assert near((row[f"{basis}_iteration_low"], row[f"{basis}_iteration_high"]), stage + bubble)
