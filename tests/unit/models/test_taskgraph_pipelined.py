"""Iterations through the stages of a pipeline against what GPipe says of them, and what can be said in one line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.models.taskgraph import StageCosts, pipeline_tasks, schedule
from stallpoint.strategies.presets import PRESETS

PIPELINE = PRESETS["pipeline"].preset
SECONDS = st.floats(0.1, 5)


def iteration(stages: list[StageCosts], micro_batches: int, read: float = 0.0) -> float:
    """Seconds of an iteration in the long run."""
    tasks = pipeline_tasks(
        read, 0.0, stages, replace(PIPELINE, micro_batches=micro_batches), prefetch=True, iterations=4
    )
    ends = schedule(tasks).end
    assert ends["update of 3"] - ends["update of 2"] == pytest.approx(ends["update of 2"] - ends["update of 1"])
    assert ends["update of 2"] - ends["update of 1"] == pytest.approx(ends["update of 1"] - ends["update of 0"])
    return float(ends["update of 1"] - ends["update of 0"])


@given(st.integers(1, 6), st.integers(1, 8), SECONDS, SECONDS)
def test_the_bubble_of_equal_stages_is_that_of_gpipe(stages: int, micro_batches: int, f: float, b: float) -> None:
    seconds = iteration([StageCosts(f, b, 0.0)] * stages, micro_batches)
    bubble = 1 - micro_batches * (f + b) / seconds
    assert bubble == pytest.approx((stages - 1) / (micro_batches + stages - 1))


def test_a_stage_waits_for_what_it_receives() -> None:
    #  time     0   2 3 4 5 6   8     11 12 14 15 16   19 20
    #  stage 1  [f1][f2]              <g>[b2    ]<g>[b1 ][u]
    #  stage 2      <a>[f1]<a>[f2][b2][b1   ][u]
    first, second = StageCosts(2, 3, 1, gradients=1), StageCosts(2, 3, 1, activations=1)
    assert iteration([first, second], 2) == 2 + 1 + 2 + 1 + 2 + 3 + max(1 + 3, 3) + 1 + 3 + 1


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=5), st.integers(1, 6), st.floats(0, 40))
def test_the_slowest_stage_works_without_a_pause(passes: list[tuple[float, float]], m: int, read: float) -> None:
    seconds = iteration([StageCosts(f, b, 0.0) for f, b in passes], m, read)
    through = sum(sum(times) + (m - 1) * max(times) for times in zip(*passes, strict=True))
    assert seconds == pytest.approx(max(through, read))
