"""What reaches a target first, and why; and stopping early beside large mini-batches."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_models_steps import LABELS, PRESETS_KNOWN, runs

from stallpoint.base.measured import Measured, Parts, Point
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.answers import time_to_accuracy
from stallpoint.models.answers.time_to_accuracy import curves_with_steps
from stallpoint.models.convergence import early_stopping
from stallpoint.models.convergence.steps import steps_of
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted

PLACE = {"hardware": "cpu", "workers_per_node": 1}


def trained(sync: str, more_steps: float, step_seconds: float, seed: int, ranks: int = 2) -> pd.DataFrame:
    found = runs(more_steps * 400, batches=[64], noise=0.02, seed=seed)
    seconds = step_seconds * found["steps_to_target"]
    return found.assign(**PLACE, sync=sync, nodes=ranks, ranks=ranks, seconds_to_target=seconds)


def table(*of: pd.DataFrame) -> pd.DataFrame:
    found = time_to_accuracy.runs_to_target(pd.concat(of), [], seed=0)
    return pd.DataFrame(time_to_accuracy.target_times(found)).set_index("sync")


def test_the_fastest_is_named_and_the_others_have_more_steps_or_longer_ones() -> None:
    rows = table(trained("wfbp", 1, 0.1, 0), trained("late", 2, 0.1, 1), trained("slow", 1, 0.3, 2))
    assert rows["verdict"].to_dict() == {"wfbp": "fastest", "late": "slower", "slow": "slower"}
    assert rows["more_steps"].to_dict() == pytest.approx({"wfbp": 1, "late": 2, "slow": 1}, rel=0.1)
    assert rows["longer_steps"].to_dict() == pytest.approx({"wfbp": 1, "late": 1, "slow": 3}, rel=0.1)
    assert (rows["slower"] / rows["more_steps"] / rows["longer_steps"]).tolist() == pytest.approx([1, 1, 1])


def test_a_difference_within_seeds_is_not_distinguishable() -> None:
    rows = table(trained("wfbp", 1, 0.1, 0), trained("alike", 1, 0.1, 1))
    assert sorted(rows["verdict"]) == ["fastest", "not distinguishable"]


def test_a_target_that_was_never_reached_is_said() -> None:
    never = trained("never", 1, 0.1, 1).assign(reached=False, steps_to_target=np.nan, seconds_to_target=np.nan)
    rows = table(trained("wfbp", 1, 0.1, 0), never)
    assert rows["verdict"].to_dict() == {"wfbp": "fastest", "never": "not reached"}
    assert rows["runs_reached"].to_dict() == {"wfbp": 3, "never": 0}


def test_more_workers_that_save_nothing_stall() -> None:
    of = [trained("wfbp", 1, seconds, ranks, ranks) for ranks, seconds in ((1, 0.2), (2, 0.1), (4, 0.1))]
    found = time_to_accuracy.runs_to_target(pd.concat(of), [], seed=0)
    (row,) = time_to_accuracy.target_stalling(found, 0.1)
    assert (row["verdict"], row["verdict_ranks"]) == ("stalls", 2)


def test_a_place_that_was_measured_is_predicted_without_its_own_measurement() -> None:
    """Two curves pass one place: one measured it, the other one only predicts it, and knows that measurement."""
    seconds = np.ones(1 + REPLICATES)
    point = Point("small", "cpu", "images", "strong", "wfbp", 1, 64, 1, 2, 2, 64, 32)
    base, weak = replace(point, nodes=1, ranks=1, worker_batch=64), replace(point, scaling="weak", batch=32)

    def predicted(point: Point, of: float) -> Predicted:
        return Predicted(point, "eq. 5", "measured at b", Parts(iteration_time=of * seconds))

    first, second = (Measured(at, (), Parts(iteration_time=seconds)) for at in (base, point))
    measuring = CurvePoints(
        {1: first, 2: second}, {n: predicted(at, 1.0) for n, at in ((1, base), (2, point))}, {2: predicted(point, 0.5)}
    )
    start = replace(weak, nodes=1, ranks=1, global_batch=32)
    other = CurvePoints({1: replace(first, point=start)}, {1: predicted(start, 1.0), 2: predicted(weak, 1.0)})
    found = pd.concat([runs(noise=0.001).assign(**PLACE, nodes=2, seconds_to_target=1.0)])
    steps = steps_of(found, PRESETS_KNOWN, seed=0)
    for curves in ([measuring, other], [other, measuring]):
        pairs = curves_with_steps(curves, steps, PRESETS_KNOWN)
        trained = time_to_accuracy.runs_to_target(found[found["batch"] == 64], pairs, seed=0)
        assert trained[0].predicted[0] == pytest.approx(0.5 * 400 * (1 + 100 / 64), rel=0.02)


def test_stopping_the_smallest_batch_early_is_as_fast_as_a_larger_batch_of_that_accuracy() -> None:
    """Accuracy rises in proportion to steps: half of it is there after half the steps."""
    ends, evaluations = [], []
    for batch, steps, best in ((32, 800, 0.8), (64, 400, 0.4)):
        for seed in range(3):
            cell = f"{batch}/{seed}"
            ends.append({**LABELS, "cell": cell, "batch": batch, "trial": 1, "seed": seed, "ended": "max steps",
                         "target": np.nan, "best_accuracy": best})  # fmt: skip
            evaluations += [{"cell": cell, "step": step, "validation_accuracy": best * step / steps}
                            for step in range(0, steps + 1, steps // 8)]  # fmt: skip
    rows = pd.DataFrame(early_stopping.table(pd.DataFrame(evaluations), pd.DataFrame(ends), seed=0)).set_index("batch")
    assert rows["verdict"].to_dict() == {32: "not distinguishable", 64: "lower"}
    assert rows["speedup"][64] == 2
    assert rows["early_over_batch"][64] == pytest.approx(1)
