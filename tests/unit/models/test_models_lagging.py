"""A rank that lags throughout costs all that the others wait for it; jitter and unequal stages are no lag."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from stallpoint.base.frames import column_groups
from stallpoint.base.lagging import is_waited_for, lagging
from stallpoint.base.measured import POINT, TIMES, measured, step_rows, with_mean_communication
from stallpoint.base.statistics import estimate
from stallpoint.models.terms.observed import BucketTimes

COMPUTING, LAG, STEPS = 0.2, 0.05, 12


def computing(ranks: int, lags: Sequence[float], jitter: float, seed: int = 0) -> np.ndarray:
    """Seconds of each step and rank, the last of which lag."""
    own = COMPUTING * np.exp(jitter * np.random.default_rng(seed).standard_normal((STEPS, ranks)))
    own[:, ranks - len(lags) :] += lags
    return own


def tables(own: np.ndarray, waits: float = 1.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Iterations, of whose waiting for each other a part is exposed communication, and layers, all convolutions."""
    step, rank = np.indices(own.shape).reshape(2, -1)
    exposed = waits * (own.max(axis=1, keepdims=True) - own)
    point = dict.fromkeys(POINT, 1) | {"network": "made-up", "ranks": own.shape[1], "nodes": own.shape[1]}
    rows = pd.DataFrame({
        **point, **dict.fromkeys((*TIMES, "read", "decode"), 0.0), "cell": "c", "repeat": 1, "visit": 1 + step % 4,
        "iteration": step, "rank": rank, "warmup": False, "forward": own.ravel() / 3, "backward": 2 * own.ravel() / 3,
        "exposed_communication": exposed.ravel(), "communication": exposed.ravel(),
        "iteration_time": np.broadcast_to(own.max(axis=1, keepdims=True), own.shape).ravel(),
    })  # fmt: skip
    return rows, rows.assign(layer_type="convolution")


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_lagging_rank_has_all_of_its_cost(ranks: int) -> None:
    (point,) = measured(step_rows(*tables(computing(ranks, [LAG], 0.01))), seed=0)
    straggling, low, high = estimate(point.parts.straggling)
    assert 0.99 * low <= LAG <= 1.01 * high
    assert straggling == pytest.approx(LAG, rel=0.1)
    for seconds in (point.parts.forward + point.parts.backward, point.parts.matrix):
        assert seconds[0] == pytest.approx(COMPUTING, rel=0.01)


def test_several_ranks_may_lag_but_not_most() -> None:
    slow = is_waited_for(tables(computing(8, [LAG, 2 * LAG, LAG], 0.0))[0]).reshape(STEPS, 8)
    assert (slow == [False] * 5 + [True] * 3).all()
    one_is_fast = is_waited_for(tables(computing(4, [0.0, LAG, LAG, LAG], 0.0))[0]).reshape(STEPS, 4)
    assert not one_is_fast.any()


def test_jitter_is_in_the_mean_of_all_ranks() -> None:
    found = [is_waited_for(tables(computing(4, [], 0.05, seed))[0]).any() for seed in range(40)]
    assert np.mean(found) < 0.1
    one_slow_step = computing(4, [], 0.01)
    one_slow_step[3, 2] *= 2
    assert not is_waited_for(tables(one_slow_step)[0]).any()


def test_ranks_that_nobody_waits_for_are_in_the_mean() -> None:
    own = computing(2, [LAG], 0.0)
    rows, layers = tables(own, waits=0.0)
    assert not is_waited_for(rows).any()
    (point,) = measured(step_rows(rows, layers), seed=0)
    assert point.parts.forward[0] == pytest.approx((COMPUTING + LAG / 2) / 3)


def test_where_nothing_is_sent_a_lagging_rank_is_none_of_the_others() -> None:
    own = computing(2, [LAG], 0.0)
    rows, layers = tables(own, waits=0.0)
    (point,) = measured(step_rows(rows.assign(iteration_time=own.ravel()), layers), seed=0)
    assert point.parts.iteration_time[0] == pytest.approx(COMPUTING)


def test_the_worker_of_a_server_s_process_does_not_stand_for_those_that_send_all() -> None:
    own, sent = computing(4, [], 0.0), np.full((STEPS, 4), 0.04)
    sent[:, 0] = 0.0
    times = {"exposed_communication": sent.ravel(), "communication": sent.ravel()}
    rows, layers = tables(own)
    rows = rows.assign(sync="asynchronous", iteration_time=(own + sent).ravel(), **times)
    for syncs, communication in (({"asynchronous"}, 0.03), ({"gossip"}, 0.0)):
        (point,) = measured(step_rows(with_mean_communication(rows, syncs), layers), seed=0)
        assert point.parts.exposed_communication[0] == pytest.approx(communication)
        assert point.parts.straggling[0] == pytest.approx(0.03 - communication)


@pytest.mark.parametrize(("averaged", "took"), [(True, 0.03), (False, 0.0)])
def test_a_message_to_servers_is_calibrated_by_all_workers(averaged: bool, took: float) -> None:
    """The one in the server's process sends none of it; a message to all ranks is that of the last to arrive."""
    rows, _ = tables(computing(4, [], 0.0))
    rows = rows.assign(sync="asynchronous", communication=np.where(rows["rank"] == 0, 0.0, 0.04))
    of_layers = rows.assign(
        layer_index=0, bucket=0, all_reduce_start=COMPUTING, all_reduce_end=COMPUTING + rows["communication"],
        gather_start=np.nan, gather_end=np.nan, gradient_bytes=8, bucket_bytes=8,
    )  # fmt: skip
    rows = with_mean_communication(rows, {"asynchronous"})
    ((_, iterations),) = column_groups(rows, "cell", list(rows))
    ((_, layers),) = column_groups(of_layers, "cell", list(of_layers))
    messages = BucketTimes(iterations, is_waited_for(rows), averaged=averaged)
    messages.add(layers)
    sending = messages.sending()
    assert sending is not None
    assert sending.collectives.tolist() == [pytest.approx([took, 0.0])] * STEPS


def test_equal_ranks_single_steps_and_one_rank_have_none_that_lags() -> None:
    same = np.full((STEPS, 4), COMPUTING)
    for own in (same, same[:, :1], computing(4, [LAG], 0.0)[:1]):
        rows, _ = tables(own)
        assert not lagging(own.ravel(), rows["cell"], rows["iteration"], rows["rank"]).any()


def test_no_rows_are_no_trouble() -> None:
    rows, _ = tables(computing(2, [], 0.0))
    assert is_waited_for(rows.iloc[:0]).shape == (0,)
