import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallpoint.models.dag import contended, in_turn

seconds = st.floats(0.1, 2.0)
jobs = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=4)


@settings(deadline=None)
@given(jobs)
def test_where_nothing_slows_anything_messages_go_in_turn(job: list[tuple[float, float]]) -> None:
    steps, messages = np.array(job).T
    ready = np.cumsum(steps)
    found = contended(ready[-1], ready, messages, messages, np.array(1.0))
    start, end = in_turn(ready, messages)
    assert found.start == pytest.approx(start)
    assert found.end == pytest.approx(end)
    assert found.backward == pytest.approx(ready[-1])


def test_a_message_beside_the_pass_and_after_it() -> None:
    # Ready after 2 of 4 s; beside it both halve their speed. The other 2 s take 4 s, in which 4 of 6 s of the message
    # are done; the last third takes a third of the 3 s that it takes alone.
    found = contended(np.array(4.0), np.array([2.0]), np.array([6.0]), np.array([3.0]), np.array(2.0))
    assert found.start == pytest.approx([2.0])
    assert found.backward == pytest.approx(6.0)
    assert found.end == pytest.approx([7.0])


def test_a_short_message_delays_the_pass_by_what_it_took_from_it() -> None:
    found = contended(np.array(10.0), np.array([1.0]), np.array([3.0]), np.array([1.0]), np.array(1.5))
    assert found.end == pytest.approx([4.0])
    assert found.backward == pytest.approx(10 + 3 * (1 - 1 / 1.5))


def test_after_the_pass_nothing_slows_it() -> None:
    found = contended(np.array(4.0), np.array([4.0, 4.0]), np.array([9.0, 9.0]), np.array([1.0, 2.0]), np.array(3.0))
    assert found.backward == pytest.approx(4.0)
    assert found.end == pytest.approx([5.0, 7.0])


@settings(max_examples=30, deadline=None)
@given(jobs, st.floats(1.0, 4.0), st.floats(1.0, 4.0))
def test_it_is_what_small_steps_of_time_give(job: list[tuple[float, float]], slower: float, longer: float) -> None:
    steps, messages = np.array(job).T
    ready = np.cumsum(steps)
    found = contended(ready[-1], ready, longer * messages, messages, np.array(slower))
    step = 0.002
    now, done, ended = 0.0, 0.0, None
    for place, whole in enumerate(messages):
        left = 1.0
        while left > 0:
            computing, sending = done < ready[-1], done >= ready[place] - 1e-9
            if sending:
                left -= step / (whole * longer if computing else whole)
            if computing:
                done += step / slower if sending else step
                ended = now + step if done >= ready[-1] else None
            now += step
        assert found.end[place] == pytest.approx(now, abs=0.05)
    if ended is not None:
        assert found.backward == pytest.approx(ended, abs=0.05)


def test_ensembles_go_row_by_row() -> None:
    backward, slower = np.array([4.0, 8.0]), np.array([[2.0], [1.0]])
    ready, beside, after = np.array([[2.0], [4.0]]), np.array([[6.0], [1.0]]), np.array([[3.0], [1.0]])
    found = contended(backward, ready, beside, after, slower)
    for row in range(2):
        one = contended(backward[row], ready[row], beside[row], after[row], slower[row])
        assert found.end[row] == pytest.approx(one.end)
        assert found.backward[row] == pytest.approx(one.backward)
