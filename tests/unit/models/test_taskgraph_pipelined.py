"""Iterations through the stages of pipelines against what GPipe says of them, and what can be said in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.models.taskgraph import StageCosts, pipeline_tasks, schedule
from stallpoint.strategies.presets import PRESETS, with_options

SECONDS = st.floats(0.1, 5)


def iteration(stages: list[StageCosts], micro_batches: int, read: float = 0.0, name: str = "pipeline") -> float:
    """Seconds of an iteration in the long run."""
    preset = with_options(PRESETS[name].preset, {"micro_batches": micro_batches})
    ends = schedule(pipeline_tasks(read, 0.0, stages, preset, prefetch=True, iterations=4)).end
    assert ends["update of 3"] - ends["update of 2"] == pytest.approx(ends["update of 2"] - ends["update of 1"])
    assert ends["update of 2"] - ends["update of 1"] == pytest.approx(ends["update of 1"] - ends["update of 0"])
    return float(ends["update of 1"] - ends["update of 0"])


@pytest.mark.parametrize("name", ["pipeline", "pipeline-1f1b"])
@given(st.integers(1, 6), st.integers(1, 8), SECONDS, SECONDS)
def test_the_bubble_of_equal_stages_is_that_of_gpipe(name: str, stages: int, count: int, f: float, b: float) -> None:
    seconds = iteration([StageCosts(f, b, 0.0)] * stages, count, name=name)
    assert 1 - count * (f + b) / seconds == pytest.approx((stages - 1) / (count + stages - 1))


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        #  time     0   2 3 4 5 6   8     11 12 14 15 16   19 20
        #  stage 1  [f1][f2]              <g>[b2    ]<g>[b1 ][u]
        #  stage 2      <a>[f1]<a>[f2][b2][b1   ][u]
        ("pipeline", 2 + 1 + 2 + 1 + 2 + 3 + max(1 + 3, 3) + 1 + 3 + 1),
        #  time     0   2 3 4 5   8     11 12 14 15
        #  stage 1  [f1][f2]      <g>[b1 ]    <g>[b2 ][u]
        #  stage 2      <a>[f1][b1   ]<a>[f2][b2   ]
        ("pipeline-1f1b", 2 + 1 + (2 + 3) + 1 + (2 + 3) + 1 + 3 + 1),
    ],
)
def test_a_stage_waits_for_what_it_receives(name: str, seconds: float) -> None:
    stages = [StageCosts(2, 3, 1, gradients=1), StageCosts(2, 3, 1, activations=1)]
    assert iteration(stages, 2, name=name) == seconds


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=5), st.integers(1, 6), st.floats(0, 40))
def test_the_slowest_stage_works_without_a_pause(passes: list[tuple[float, float]], m: int, read: float) -> None:
    seconds = iteration([StageCosts(f, b, 0.0) for f, b in passes], m, read)
    through = sum(sum(times) + (m - 1) * max(times) for times in zip(*passes, strict=True))
    assert seconds == pytest.approx(max(through, read))
