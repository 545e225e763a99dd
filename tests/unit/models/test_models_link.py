import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.models.terms.data import Traffic, shared_seconds

CAPACITY = 100e6
BYTES = st.floats(1e4, 1e9)


def finished(alone: float, read: float, gradients: float) -> tuple[float, float]:
    """When both are through, by small steps: each gets half of the link, or less if it cannot use it."""
    fastest = min(read / alone, CAPACITY)
    step = max(read / fastest, gradients / CAPACITY) / 5000
    done = [np.inf, np.inf]
    now = 0.0
    while read > 0 or gradients > 0:
        now += step
        for_data = min(fastest, CAPACITY / 2 if gradients > 0 else CAPACITY) if read > 0 else 0.0
        read, gradients = read - for_data * step, gradients - (CAPACITY - for_data) * step
        done = [min(done[0], now) if read <= 0 else np.inf, min(done[1], now) if gradients <= 0 else np.inf]
    return done[0], done[1]


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize(("read", "gradients"), [(50e6, 5e6), (5e6, 50e6), (20e6, 20e6)])
def test_data_and_gradients_share_the_link_fairly(rate: float, read: float, gradients: float) -> None:
    alone = read / (rate * CAPACITY)
    data, sent = shared_seconds(np.array([alone]), read, Traffic(np.array([CAPACITY]), gradients))
    assert (data[0], sent[0]) == pytest.approx(finished(alone, read, gradients), rel=2e-3)


@given(read=BYTES, gradients=BYTES, rate=st.floats(0.01, 3.0))
def test_nothing_is_faster_together_and_the_link_carries_no_more_than_it_can(
    read: float, gradients: float, rate: float
) -> None:
    alone = np.array([read / (rate * CAPACITY)])
    data, sent = shared_seconds(alone, read, Traffic(np.array([CAPACITY]), gradients))
    assert data[0] >= alone[0]
    assert sent[0] >= gradients / CAPACITY * (1 - 1e-9)
    assert max(data[0], sent[0]) >= (read + gradients) / CAPACITY * (1 - 1e-9)


def test_no_data_leaves_the_link_to_the_gradients() -> None:
    data, sent = shared_seconds(np.array([0.0]), 0.0, Traffic(np.array([CAPACITY]), 10e6))
    assert (data[0], sent[0]) == (0.0, pytest.approx(0.1))
