"""The 1F1B pipeline beside GPipe's: in which order stages compute, what they wait for and what they keep."""

from graphlib import TopologicalSorter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.base.measured import Point
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.answers.fits import MemoryModel
from stallpoint.models.terms.peaks import Peaks
from stallpoint.models.terms.training_cells import Layers
from stallpoint.records.tables import ENVIRONMENTS, PEAK_MEMORY
from stallpoint.strategies.families.one_forward_one_backward_family import OneForwardOneBackward
from stallpoint.strategies.families.pipeline_family import BACKWARD, FORWARD
from stallpoint.strategies.presets import PRESETS, Preset, with_options

NAME = "pipeline-1f1b"
COUNTS = st.integers(1, 8)


def preset(micro_batches: int, name: str = NAME) -> Preset:
    return with_options(PRESETS[name].preset, {"micro_batches": micro_batches})


def orders(stages: int, micro_batches: int) -> list[list[tuple[str, int]]]:
    """The turns of each stage."""
    strategy = preset(micro_batches).strategy
    assert isinstance(strategy, OneForwardOneBackward)
    return [list(strategy.schedule(stage, stages)) for stage in range(1, stages + 1)]


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


def test_fewer_activations_are_kept_than_by_gpipe() -> None:
    """Memory of 1 GB and 10 MB for each sample, and no weights to speak of."""
    batches, one = [4, 16], np.ones(1 + REPLICATES)
    alone = Peaks(
        ("net", "cpu", 1, "none", 0, 1), "host", batches, np.outer(one, [1e9 + 1e7 * b for b in batches]),
        [dict.fromkeys(("weights", "gradients", "optimiser"), 0.0)], (), None, one,
    )  # fmt: skip
    point = Point("net", "cpu", "disk", "weak", "mine", 0, 16, 1, 2, 2, 32, 16)
    layers = {"net": Layers(("fc",), np.array(["fully-connected"]), np.array([4]))}
    nothing = [table.schema.empty_table().to_pandas() for table in (PEAK_MEMORY, ENVIRONMENTS)]
    for name, samples in {"pipeline": 16, NAME: 16 * 2 / 8}.items():
        memory = MemoryModel([alone], [], layers, {"mine": preset(8, name)}, *nothing)
        assert memory.held_out(point).peak[0] == pytest.approx(1e9 + 1e7 * samples)
