"""The iteration time of a graph that repeats is what scheduling its repetitions comes to, however it is summed up."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.models.taskgraph import Kind, Task, schedule
from stallpoint_traces.rank.cycle_time import Cycle, StreamTask, cycle

STREAMS = 4


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 25, max_others: int = 9) -> list[StreamTask]:
    """A graph of tasks in streams, each after any that came before; durations of some are variable."""
    nodes: list[StreamTask] = []
    last = {stream: -1 - stream for stream in range(STREAMS)}
    for place in range(draw(st.integers(1, max_nodes))):
        stream = draw(st.integers(0, STREAMS - 1))
        others = draw(st.lists(st.integers(-STREAMS, place - 1), max_size=max_others))
        after = [(before, float(draw(st.integers(0, 9)))) for before in dict.fromkeys([last[stream], *others])]
        nodes.append(StreamTask(stream, float(place % 4), after, place if draw(st.booleans()) else -1))
        last[stream] = place
    return [*nodes, StreamTask(0, 0.0, [(last[0], 1.0)])]


def repeated(nodes: Sequence[StreamTask], iterations: int) -> Iterator[Task]:
    """The same as tasks; what lies between two tasks is one in a stream of its own."""
    before = {node.stream: "" for node in nodes}
    for number in range(iterations):
        names = {-1 - stream: name for stream, name in before.items()}
        for place, node in enumerate(nodes):
            names[place] = name = f"{place} of {number}"
            lags = [(names.get(at, ""), lag) for at, lag in node.after]
            for edge, (source, lag) in enumerate(lags):
                own = f"edge {edge} to {name}"
                yield Task(own, Kind.INPUT, own, lag, (source,) if source else ())
            waits = tuple(f"edge {edge} to {name}" for edge in range(len(lags)))
            yield Task(name, Kind.INPUT, f"stream {node.stream}", node.seconds, waits)
            before[node.stream] = name


@given(graphs(max_nodes=5, max_others=2))
def test_an_iteration_takes_what_the_schedule_of_many_comes_to(nodes: list[StreamTask]) -> None:
    count, repeats = 30, 12  # of a cycle through at most four streams whose lengths are whole numbers
    ends = schedule(list(repeated(nodes, count))).end
    last = [max(float(ends[f"{place} of {number}"]) for place in range(len(nodes)))
            for number in (count - 1 - repeats, count - 1)]  # fmt: skip
    found = cycle(nodes)
    # A cycle may take turns with one that is all but as long: then it has not settled yet.
    assert (last[1] - last[0]) / repeats == pytest.approx(float(found.iteration(found.seconds)), abs=0.25)


def by_every_path(nodes: Sequence[StreamTask]) -> float:
    """The cycle time by the longest paths from one stream's end after the other to all nodes."""
    streams = sorted({node.stream for node in nodes})
    matrix = np.full((len(streams), len(streams)), -np.inf)
    for at, stream in enumerate(streams):
        ends = {-1 - other: 0.0 if other == stream else -np.inf for other in range(STREAMS)}
        last = {other: -1 - other for other in streams}
        for place, node in enumerate(nodes):
            ends[place] = node.seconds + max(ends[before] + lag for before, lag in node.after)
            last[node.stream] = place
        matrix[:, at] = [ends[last[other]] for other in streams]
    nothing = np.array([], np.int64)
    paths = [{at: float(seconds) for at, seconds in enumerate(row) if np.isfinite(seconds)} for row in matrix]
    return float(Cycle(len(streams), nothing, np.empty(0), [], paths).iteration(np.empty(0)))


@given(graphs(), st.data())
def test_a_graph_that_is_summed_up_takes_as_long_as_every_path_of_it(
    nodes: list[StreamTask], data: st.DataObject
) -> None:
    found = cycle(nodes)
    count = len(found.keys)
    durations = data.draw(st.lists(st.integers(0, 30).map(float), min_size=count, max_size=count))
    given_ = dict(zip(found.keys.tolist(), durations, strict=True))
    expected = by_every_path([replace(node, seconds=given_.get(node.key, node.seconds)) for node in nodes])
    assert float(found.iteration(np.array(durations))) == pytest.approx(expected)
    # A member of an ensemble is what it is alone.
    both = np.stack([np.array(durations), found.seconds], -1)
    np.testing.assert_allclose(found.iteration(both), [expected, float(found.iteration(found.seconds))])


def gathers(count: int) -> list[StreamTask]:
    """Computing that waits for one all-gather after the other, as in FSDP: paths through each lead to the end."""
    nodes: list[StreamTask] = []
    for block in range(count):
        host, before = 3 * block - 3 if block else -1, 3 * block - 1 if block else -2
        nodes.append(StreamTask(0, 0.0, [(host, 1.0)]))
        nodes.append(StreamTask(2, 2.0, [(3 * block, 0.0), (3 * block - 2 if block else -3, 0.0)], 3 * block + 1))
        nodes.append(StreamTask(1, 3.0, [(3 * block, 0.0), (before, 0.0), (3 * block + 1, 0.0)]))
    return [*nodes, StreamTask(0, 0.0, [(3 * count - 3, 1.0), (3 * count - 1, 0.0)])]


def test_paths_grow_with_the_collectives_and_not_with_their_square() -> None:
    paths = []
    for count in (100, 800):
        found = cycle(gathers(count))
        assert len(found.keys) == count
        paths.append(sum(len(of) for _, of in found.steps))
    assert paths[1] < 1.5 * 8 * paths[0]
