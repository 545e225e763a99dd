"""When tasks run: streams in order, and what is under way slowing the rest down."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.models.taskgraph import Kind, Task, TaskSchedule, schedule

seconds = st.floats(0.1, 2.0)
jobs = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=4)


def backward_and_messages(
    steps: object, after: object, beside: object = None, slows: object = 1.0
) -> tuple[TaskSchedule, list[str], str]:
    """A backward pass whose steps each make a message ready; names of the messages and of the last step."""
    tasks: list[Task] = []
    for place, (step, message) in enumerate(zip(steps, after, strict=True)):
        tasks.append(Task(f"step {place}", Kind.COMPUTE, "compute", step))
        other = None if beside is None else beside[place]
        tasks.append(Task(f"message {place}", Kind.MESSAGE, "network", message, (f"step {place}",), other, slows))
    return schedule(tasks), [f"message {place}" for place in range(len(steps))], f"step {len(steps) - 1}"


def test_a_message_beside_the_pass_and_after_it() -> None:
    # Ready after 2 of 4 s; beside it both halve their speed. The other 2 s take 4 s, in which 4 of 6 s of the message
    # are done; the last third takes a third of the 3 s that it takes without computing.
    tasks = [
        Task("first", Kind.COMPUTE, "compute", 2.0),
        Task("second", Kind.COMPUTE, "compute", 2.0),
        Task("message", Kind.MESSAGE, "network", 3.0, ("first",), 6.0, 2.0),
    ]
    found = schedule(tasks)
    assert (found.start["message"], found.end["second"], found.end["message"]) == (2, 6, 7)


def test_a_short_message_delays_the_pass_by_what_it_took_from_it() -> None:
    found, (message, _), last = backward_and_messages([1, 9], [1, 0], [3, 0], 1.5)
    assert found.end[message] == pytest.approx(4)
    assert found.end[last] == pytest.approx(10 + 3 * (1 - 1 / 1.5))


def test_input_neither_slows_nor_is_slowed() -> None:
    tasks = [
        Task("read", Kind.INPUT, "disk", 3.0),
        Task("step", Kind.COMPUTE, "compute", 2.0),
        Task("message", Kind.MESSAGE, "network", 1.0, co_running=2.0, slows=2.0),
    ]
    found = schedule(tasks)
    assert found.end["read"] == 3
    assert (found.end["message"], found.end["step"]) == (2, 3)


@given(jobs)
def test_where_nothing_slows_anything_messages_go_in_turn(job: list[tuple[float, float]]) -> None:
    steps, messages = np.array(job).T
    found, names, last = backward_and_messages(steps, messages)
    free = 0.0
    for name, ready, message in zip(names, np.cumsum(steps), messages, strict=True):
        assert found.start[name] == pytest.approx(max(free, ready))
        free = max(free, ready) + message
        assert found.end[name] == pytest.approx(free)
    assert found.end[last] == pytest.approx(steps.sum())


@given(jobs, st.floats(1.0, 4.0), st.floats(1.0, 4.0))
def test_it_is_what_small_steps_of_time_give(job: list[tuple[float, float]], slower: float, longer: float) -> None:
    steps, messages = np.array(job).T
    ready = np.cumsum(steps)
    found, names, last = backward_and_messages(steps, messages, longer * messages, slower)
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
        assert found.end[names[place]] == pytest.approx(now, abs=0.05)
    if ended is not None:
        assert found.end[last] == pytest.approx(ended, abs=0.05)


def test_members_of_an_ensemble_are_scheduled_by_themselves() -> None:
    steps, messages = np.array([[1.0, 2.0], [3.0, 1.0]]), np.array([[5.0, 1.0], [2.0, 4.0]])
    whole, names, last = backward_and_messages(steps, messages, 2 * messages, np.array([1.5, 3.0]))
    for member, slows in enumerate((1.5, 3.0)):
        one, _, _ = backward_and_messages(steps[:, member], messages[:, member], 2 * messages[:, member], slows)
        for name in (*names, last):
            assert whole.start[name][member] == pytest.approx(one.start[name])
            assert whole.end[name][member] == pytest.approx(one.end[name])


def test_what_is_not_known_of_one_member_spoils_no_other() -> None:
    found = schedule([Task("a", Kind.COMPUTE, "x", np.array([1.0, np.nan])), Task("b", Kind.INPUT, "y", 1.0, ("a",))])
    assert found.end["b"] == pytest.approx([2.0, np.nan], nan_ok=True)
    assert found.start["a"] == pytest.approx([0.0, np.nan], nan_ok=True)


def test_many_members_are_compiled_to_the_same_result() -> None:
    random = np.random.default_rng(0)
    steps, messages = random.random((20, 700)), random.random((20, 700))
    whole, names, _ = backward_and_messages(steps, messages, 2 * messages, 1.5)
    few, _, _ = backward_and_messages(steps[:, :3], messages[:, :3], 2 * messages[:, :3], 1.5)
    for name in names:
        assert whole.end[name][:3] == pytest.approx(few.end[name])


def test_wrong_graphs_are_refused() -> None:
    def task(name: str, *after: str, stream: str = "s", **changes: float) -> Task:
        return Task(name, Kind.MESSAGE, stream, **{"seconds": 1.0, **changes}, after=after)

    with pytest.raises(InputError, match="two tasks have the same name"):
        schedule([task("a"), task("a")])
    with pytest.raises(InputError, match="a comes after b, which does not exist"):
        schedule([task("a", "b")])
    with pytest.raises(InputError, match="tasks wait for each other"):
        schedule([task("a", "b"), task("b", stream="t"), task("c", "a", stream="t"), task("d", "c")][::-1])
    with pytest.raises(InputError, match="b has a duration below 0, or speeds others up"):
        schedule([task("a"), task("b", seconds=-1.0)])
    with pytest.raises(InputError, match="a has a duration below 0, or speeds others up"):
        schedule([task("a", slows=0.5)])
