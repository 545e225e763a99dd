"""The work of explaining a trace grows with its collectives, not with their square."""

import sys
from pathlib import Path
from time import process_time
from types import FrameType

import pytest
from planted_traces import Planted

from stallpoint_traces.rank.rank import read_ranks
from stallpoint_traces.trace_answers import explain


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
