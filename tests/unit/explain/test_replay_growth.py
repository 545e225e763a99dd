"""Replays stay exact when their graphs are summed up, and their work grows with the collectives, not their square."""

import sys
from pathlib import Path
from time import process_time
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_traces import Planted

from stallpoint.explain.graph import HOST, Graph, Node
from stallpoint.explain.rank import read_ranks
from stallpoint.explain.replay import _cycle_time, replay
from stallpoint.explain.started import Started
from stallpoint.explain.trace_answers import explain

LANES = 3


@st.composite
def graph_of_tasks(draw: st.DrawFn) -> tuple[Graph, list[bool]]:
    """A graph of tasks in lanes, each after any that came before, and which of them communicate."""
    count = draw(st.integers(1, 25))
    nodes, sends = [], []
    last = {lane: -2 - lane for lane in range(LANES)} | {HOST: -1}
    for place in range(count):
        lane = draw(st.integers(HOST, LANES - 1))
        others = draw(st.lists(st.integers(-1 - LANES, place - 1), max_size=9))
        after = tuple((before, float(draw(st.integers(0, 9)))) for before in dict.fromkeys([last[lane], *others]))
        sends.append(lane != HOST and draw(st.booleans()))
        nodes.append(Node(lane, -1 if lane == HOST else place, 0.0 if lane == HOST else float(place % 4), after))
        last[lane] = place
    return Graph([*nodes, Node(HOST, -1, 0.0, ((last[HOST], 1.0),))], LANES), [*sends, False]


def started(sends: list[bool]) -> Started:
    """As much of `Started` as a replay asks for."""
    columns: dict[str, Any] = dict.fromkeys(Started.__dataclass_fields__)
    columns["communicates"] = np.array(sends)
    columns["events"] = type("Events", (), {"seconds": np.zeros(len(sends))})
    return Started(**columns)


def by_every_path(graph: Graph, seconds: dict[int, float]) -> float:
    """The same cycle time, by the longest paths from one source after the other to all nodes."""
    sources = [-1, *(-2 - lane for lane in range(graph.lanes))]
    matrix = np.full((len(sources), len(sources)), -np.inf)
    for at, source in enumerate(sources):
        ends = dict.fromkeys(sources, -np.inf) | {source: 0.0}
        last = {before: before for before in sources}
        for place, node in enumerate(graph.nodes):
            took = seconds.get(node.place, node.seconds)
            ends[place] = took + max((ends[before] + lag for before, lag in node.after), default=-np.inf)
            last[-1 if node.lane == HOST else -2 - node.lane] = place
        matrix[:, at] = [ends[last[end]] for end in sources]
    return float(_cycle_time(matrix[..., None])[0])


@given(graph_of_tasks(), st.data())
def test_a_graph_that_is_summed_up_takes_as_long_as_every_path_of_it(
    drawn: tuple[Graph, list[bool]], data: st.DataObject
) -> None:
    graph, sends = drawn
    found = replay(graph, started(sends))
    durations = data.draw(
        st.lists(st.integers(0, 30).map(float), min_size=len(found.places), max_size=len(found.places))
    )
    expected = by_every_path(graph, dict(zip(found.places.tolist(), durations, strict=True)))
    assert float(found.iteration(np.array(durations))) == pytest.approx(expected)


def gathers(count: int) -> Graph:
    """Computing that waits for one all-gather after the other, as in FSDP: paths through each lead to the end."""
    nodes: list[Node] = []
    for block in range(count):
        host, before = 3 * block - 3 if block else -1, 3 * block - 1 if block else -2
        nodes.append(Node(HOST, -1, 0.0, ((host, 1.0),)))
        nodes.append(Node(1, 3 * block + 1, 2.0, ((3 * block, 0.0), (3 * block - 2 if block else -3, 0.0))))
        nodes.append(Node(0, 3 * block + 2, 3.0, ((3 * block, 0.0), (before, 0.0), (3 * block + 1, 0.0))))
    return Graph([*nodes, Node(HOST, -1, 0.0, ((3 * count - 3, 1.0), (3 * count - 1, 0.0)))], 2)


def test_paths_grow_with_the_collectives_and_not_with_their_square() -> None:
    paths = []
    for count in (100, 800):
        found = replay(gathers(count), started([False, True, False] * count + [False]))
        assert len(found.places) == count
        paths.append(sum(len(step.paths) for step in found.steps))
    assert paths[1] < 1.5 * 8 * paths[0]


def calls_of(path: Path) -> int:
    """Calls that explaining a trace makes, those of C included."""
    count = 0

    def counted(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        (told,) = explain(read_ranks([path]))
    finally:
        sys.setprofile(None)
    assert told["predicted"]
    return count


def many(messages: int, folder: Path) -> Path:
    sizes = tuple(4_000 + 4 * at for at in range(messages))
    planted = Planted(message_bytes=sizes, backward=messages * 1e-4, iterations=2)
    return planted.write(folder / f"{messages}.json")


def test_calls_grow_with_the_messages_of_an_iteration(tmp_path: Path) -> None:
    few, more = (calls_of(many(messages, tmp_path)) for messages in (40, 320))
    assert more < 1.5 * 8 * few


@pytest.mark.night
def test_ten_thousand_messages_of_an_iteration_take_as_many_times_as_long(tmp_path: Path) -> None:
    seconds = []
    for messages in (1_250, 10_000):
        path, began = many(messages, tmp_path), process_time()
        calls = explain(read_ranks([path]))
        seconds.append(process_time() - began)
        assert calls[0]["predicted"]
    # With the square it would be 64 times as long.
    assert seconds[1] < 24 * seconds[0]
