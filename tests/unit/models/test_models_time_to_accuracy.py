"""Where more workers stop saving time to a target, where steps and iteration times are both known."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from test_models_steps import LABELS, PRESETS_KNOWN, by_workers, runs

from stallpoint.base.measured import Measured, Parts, Point
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.answers import time_to_accuracy
from stallpoint.models.convergence.steps import Steps, steps_of
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
from stallpoint.strategies.presets import Preset

NODES = (1, 2, 4, 8)
BATCH = 16
THRESHOLD = 0.1


SPREAD = np.concatenate([[1.0], np.linspace(0.98, 1.02, REPLICATES)])


def curve(scaling: str, sync: str = "wfbp") -> CurvePoints:
    """Iterations of 1 s for `BATCH` samples of a worker: communication is free."""

    def at(nodes: int) -> Measured:
        batch = BATCH if scaling == "weak" else 4 * BATCH // nodes
        labels = ("alexnet", "cpu", "local", scaling, sync, 2, BATCH if scaling == "weak" else 4 * BATCH)
        point = Point(*labels, 1, nodes, nodes, nodes * batch, batch)
        return Measured(point, (), Parts(iteration_time=batch / BATCH * SPREAD))

    measured = {n: at(n) for n in NODES}
    predicted = {n: Predicted(one.point, "eq. 5", "measured at b", one.parts) for n, one in measured.items()}
    return CurvePoints(measured, predicted)


@pytest.fixture(scope="module")
def curves() -> list[CurvePoints]:
    return [curve("weak"), curve("strong")]


def planted(critical: float, **more: object) -> list[Steps]:
    found = runs(critical=critical, noise=0.01, batches=[8, 16, 32, 64, 128, 256], **more)  # type: ignore[arg-type]
    return steps_of(found.assign(network="alexnet"), PRESETS_KNOWN, seed=0)


Rows = list[dict[str, object]]


def tables(curves: list[CurvePoints], steps: list[Steps], presets: Mapping[str, Preset]) -> tuple[Rows, Rows]:
    return time_to_accuracy.tables(time_to_accuracy.curves_with_steps(curves, steps, presets), THRESHOLD)


def answers(curves: list[CurvePoints], steps: list[Steps]) -> tuple[pd.DataFrame, pd.DataFrame]:
    times, stalls = tables(curves, steps, PRESETS_KNOWN)
    return pd.DataFrame(times), pd.DataFrame(stalls)


def test_time_is_steps_times_iteration_time(curves: list[CurvePoints]) -> None:
    times, _ = answers(curves, planted(critical=64))
    weak = times[times["scaling"] == "weak"].set_index("nodes")
    for n in NODES:
        steps = 400 * (1 + 64 / (BATCH * n))
        seconds = float(curves[0].measured[n].parts.iteration_time[0])
        assert weak["time"][n] == pytest.approx(steps * seconds, rel=0.05)
        assert weak["time_low"][n] <= weak["time"][n] <= weak["time_high"][n]


def test_beyond_the_critical_batch_more_workers_save_nothing(curves: list[CurvePoints]) -> None:
    # Weak scaling, free communication: doubling gains (1 + x) / (1 + x / 2) with x = critical / B.
    _, small = answers(curves, planted(critical=10))  # 1.13 from B = 32 on, 1.07 from 64 on
    _, large = answers(curves, planted(critical=2000))
    weak = [frame[frame["scaling"] == "weak"].iloc[0] for frame in (small, large)]
    assert (weak[0]["verdict"], weak[0]["verdict_ranks"]) == ("stalls", 4)
    assert (weak[1]["verdict"], weak[1]["verdict_ranks"]) == ("scales", 8)


def test_strong_scaling_takes_the_same_steps_everywhere(curves: list[CurvePoints]) -> None:
    times, stalls = answers(curves, planted(critical=6))
    strong = times[times["scaling"] == "strong"].set_index("nodes")
    assert strong["steps"].nunique() == 1
    ratio = strong["time"][1] / strong["time"][4]
    measured = curves[1].measured
    assert ratio == pytest.approx(float(measured[1].parts.iteration_time[0] / measured[4].parts.iteration_time[0]))
    assert len(stalls[stalls["scaling"] == "strong"]) == 1


def test_an_algorithm_takes_the_steps_of_as_many_workers_and_alone_those_of_sgd() -> None:
    trained = pd.concat([by_workers("asynchronous"), runs(200, noise=0.01)]).assign(network="alexnet")
    steps = steps_of(trained, PRESETS_KNOWN, seed=0)
    times, stalls = answers([curve("strong", "asynchronous")], steps)
    by_ranks = times.set_index("ranks")
    assert by_ranks["steps_ranks"].to_dict() == {1: 0, 2: 2, 4: 4}  # nobody trained on 8
    assert by_ranks["steps_sync"].tolist() == ["wfbp", "asynchronous", "asynchronous"]
    # Twice the workers halve an iteration; from one to two, and from two to four, steps double.
    assert by_ranks["time"].to_dict() == pytest.approx(dict.fromkeys((1, 2, 4), by_ranks["time"][1]), rel=0.05)
    assert by_ranks["speedup"][4] == pytest.approx(1, rel=0.05)
    assert by_ranks["throughput_speedup"][4] == pytest.approx(4)
    assert (stalls["verdict"].item(), stalls["verdict_ranks"].item()) == ("stalls", 1)


def test_nothing_is_known_of_an_algorithm_that_nobody_trained() -> None:
    assert answers([curve("strong", "asynchronous")], planted(critical=64))[0].empty


def test_a_batch_that_never_reaches_the_target_has_no_time(curves: list[CurvePoints]) -> None:
    times, stalls = answers(curves, planted(critical=64, failing=(64, 128, 256)))
    weak = times[times["scaling"] == "weak"].set_index("nodes")
    assert weak["time"].notna().tolist() == [True, True, False, False]
    row = stalls[stalls["scaling"] == "weak"].iloc[0]
    assert row["largest_considered"] == 2


def test_steps_of_another_network_or_of_lossy_gradients_say_nothing(curves: list[CurvePoints]) -> None:
    assert answers(curves, steps_of(runs(), PRESETS_KNOWN, seed=0))[0].empty
    lossy = PRESETS_KNOWN | {"half": Preset(gradient_bits=16)}
    steps = steps_of(runs().assign(network="alexnet", sync="half"), lossy, seed=0)
    assert tables(curves, steps, lossy) == ([], [])
    naive = steps_of(runs().assign(network="alexnet", sync="naive"), PRESETS_KNOWN, seed=0)
    assert len(tables(curves, naive, PRESETS_KNOWN)[1]) == 2


def test_labels_are_those_of_the_training(curves: list[CurvePoints]) -> None:
    times, stalls = answers(curves, planted(critical=64))
    for frame in (times, stalls):
        assert (frame["recipe"] == LABELS["recipe"]).all()
        assert (frame["target"] == LABELS["target"]).all()
