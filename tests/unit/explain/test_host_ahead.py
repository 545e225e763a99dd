"""A host that runs ahead of its device: iterations are the device's; what one rank's trace does not tell stays open."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_traces import BETA, Planted, in_words

from stallpoint_traces.rank.rank import Rank, read_ranks
from stallpoint_traces.trace_answers import explain
from stallpoint_traces.trace_words import sentences

COMPUTING, SENT, UPDATE, HOST = 6.4e-3, 12.0e-3, 0.6e-3, 16e-3
"""Seconds: of an iteration on the device the first three, one after the other; the host starts one in `HOST`."""


FILLING = 6
"""Iterations after which the queue is full."""


def ahead(
    iterations: int, *, synchronises: bool = False, host_seconds: float = HOST, room: int = 1000, sent: float = SENT
) -> list[dict[str, Any]]:
    """A training of which nothing lets the host wait, on AMD's device: kernels that are called Generic.

    Nothing but that its queue has `room` for so many kernels that have not begun; the profiler starts when it is full.
    """
    events: list[dict[str, Any]] = []
    begun: list[float] = []

    def add(category: str, name: str, start: float, seconds: float, **args: Any) -> None:
        where = {"ph": "X", "pid": 1, "tid": args.get("stream", 1), "args": args}
        events.append({**where, "cat": category, "name": name, "ts": 1e6 * start, "dur": 1e6 * seconds})

    free, host, traced = 0.0, 1.0, 0.0
    for step in range(-FILLING if room < FILLING else 0, iterations):
        begin, stood = host, 0.0
        traced = 1e6 * begin if step == 0 else traced
        for place, (name, seconds, stream) in enumerate(
            (("gemm", COMPUTING, 0), ("ncclDevKernel_Generic(x)", sent, 4), ("sgd", UPDATE, 0))
        ):
            called, correlation = begin + stood + host_seconds * (1 + 5 * place) / 16, 10 * (step + FILLING) + place
            if stream:
                add("user_annotation", "nccl:all_reduce", called - 2e-5, 4e-5, **{"Input Dims": [[8_000_000]],
                    "Input type": ["c10::BFloat16"]})  # fmt: skip
            if place:
                add("cuda_runtime", "hipStreamWaitEvent", called - 1e-5, 1e-6)
            full = max(0.0, begun[-room] - called) if len(begun) >= room else 0.0
            stood += full
            add("cuda_runtime", "hipLaunchKernel", called, 5e-6 + full, correlation=correlation)
            began = max(free, called + 5e-6)
            begun.append(began)
            add("kernel", name, began, seconds, stream=stream, correlation=correlation)
            free = began + seconds
        backward = host_seconds * 1.5 / 16
        add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", begin + backward, host_seconds / 4)
        if synchronises:
            add("cuda_runtime", "hipDeviceSynchronize", begin + 12e-3, free - begin - 12e-3)
        host = free if synchronises else begin + stood + host_seconds
        add("user_annotation", f"ProfilerStep#{step}", begin, host - begin)
    return [event for event in events if event["ts"] >= traced]


def rank_of(events: list[dict[str, Any]], folder: Path) -> tuple[dict[str, Any], Rank]:
    path = folder / "rank0.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": 0, "world_size": 8}, "traceEvents": events}))
    ranks = read_ranks([path])
    ((_, rank),), (told,) = ranks, explain(ranks)
    assert rank is not None
    return told, rank


@pytest.mark.parametrize("iterations", [3, 12])
def test_iterations_are_those_of_the_device_where_nothing_synchronises(iterations: int, tmp_path: Path) -> None:
    told, rank = rank_of(ahead(iterations), tmp_path)
    whole = COMPUTING + SENT + UPDATE
    assert rank.iterations.ahead
    assert told["iteration_seconds"] == pytest.approx(whole, rel=1e-6) == pytest.approx(19e-3)
    assert told["seconds"]["compute"] == pytest.approx(COMPUTING + UPDATE, rel=1e-6)
    assert told["seconds"]["exposed_communication"] == pytest.approx(SENT, rel=1e-6)
    assert told["replayed_seconds"] == pytest.approx(whole, rel=0.01)
    assert any("the host runs ahead of the device" in note for note in told["notes"])


def test_where_the_host_waits_iterations_are_its_own(tmp_path: Path) -> None:
    told, rank = rank_of(ahead(5, synchronises=True), tmp_path)
    assert not rank.iterations.ahead
    assert told["iteration_seconds"] == pytest.approx(COMPUTING + SENT + UPDATE + 1.005e-3, rel=1e-3)


def test_one_ranks_communication_is_transfer_and_waiting_and_its_intervals_hold_that(tmp_path: Path) -> None:
    told, _ = rank_of(ahead(3), tmp_path)
    text = in_words([told])
    assert "communication that nothing hides: transfer and waiting, not told apart; 12 ms" in text
    assert "Link: α" in text
    link = told["predicted"]["link"]
    # Seven of eight ranks may have come last: nearly all of the time may be waiting.
    assert link["beta_seconds_per_byte_low"] < 0.2 * link["beta_seconds_per_byte_high"]
    at = {row["workers"]: row for row in told["predicted"]["workers"]}
    assert at[64]["iteration_seconds_high"] > 1.05 * at[64]["iteration_seconds_low"]


def one_worker(told: dict[str, Any]) -> tuple[float, float, float]:
    """Seconds of an iteration of one worker alone, and their interval."""
    row = told["predicted"]["workers"][0]
    assert row["workers"] == 1
    return row["iteration_seconds"], row["iteration_seconds_low"], row["iteration_seconds_high"]


def test_a_host_that_stands_before_a_full_queue_is_not_one_that_works(tmp_path: Path) -> None:
    # It needs 3 ms of an iteration itself, and stands in calls for the rest of the 19 ms that the device takes.
    told, rank = rank_of(ahead(12, host_seconds=3e-3, room=4), tmp_path)
    assert told["iteration_seconds"] == pytest.approx(COMPUTING + SENT + UPDATE, rel=0.01)
    np.testing.assert_allclose(rank.replayed, COMPUTING + SENT + UPDATE, rtol=0.01)
    value, low, high = one_worker(told)
    assert value == pytest.approx(COMPUTING + UPDATE, rel=0.01)
    assert 0.8 * value < low < value < high < 1.2 * value


def test_of_a_device_that_is_never_idle_the_host_may_need_anything_up_to_its_traced_time(tmp_path: Path) -> None:
    # Nothing says whether its 16 ms are work: alone a worker needs its device's 7 ms at least, and 16 ms at most.
    told, _ = rank_of(ahead(6), tmp_path)
    value, low, high = one_worker(told)
    assert low < 1.02 * (COMPUTING + UPDATE)
    assert high > 0.95 * HOST
    assert COMPUTING + UPDATE <= value <= HOST
    (at_8,) = (row for row in told["predicted"]["workers"] if row["workers"] == 8)
    assert at_8["speedup_low"] < 8 * (COMPUTING + UPDATE) / (COMPUTING + SENT + UPDATE) < at_8["speedup_high"]
    assert told["predicted"]["stalling"]["probabilities"][64] < 1
    assert any("The device is never idle" in sentence for sentence in sentences(told))


def test_a_host_that_keeps_its_device_waiting_works(tmp_path: Path) -> None:
    # Of its 16 ms the device is busy for 9: alone it would wait as long.
    told, _ = rank_of(ahead(6, sent=2e-3), tmp_path)
    assert told["seconds"]["launch"] + told["seconds"]["other"] > 5e-3
    value, low, high = one_worker(told)
    assert value == pytest.approx(HOST, rel=0.01)
    assert 0.8 * HOST < low < high < 1.2 * HOST
    assert not any("never idle" in sentence for sentence in sentences(told))


def test_ranks_tell_the_link_as_closely_as_their_iterations_do(tmp_path: Path) -> None:
    sizes = (40_000_000, 20_000_000)  # two all-reduces, which gave β with ± 0.05 %
    files = [Planted(rank=rank, workers=2, message_bytes=sizes, iterations=3).write(tmp_path / f"rank{rank}.json")
             for rank in range(2)]  # fmt: skip
    for told in explain(read_ranks(files)):
        link = told["predicted"]["link"]
        low, high = (link[f"beta_seconds_per_byte_{end}"] for end in ("low", "high"))
        assert link["source"] == "ranks"
        assert link["beta_seconds_per_byte"] == pytest.approx(BETA, rel=1e-3)
        assert 0.02 < (high - low) / BETA < 0.5
        assert "not told apart" not in in_words([told])


def test_a_replay_that_is_off_is_said_and_predicts_nothing(tmp_path: Path) -> None:
    planted = Planted(iterations=6)
    events = planted.trace()["traceEvents"]
    kernels = [event for event in events if event["name"] == "optimizer"]
    for event in kernels:
        event["dur"] *= 10  # into the next iteration: kernels of one stream overlap, as their times are wrong
    (told,) = explain(read_ranks([planted.write_events(tmp_path / "rank1.json")]))
    assert told["replayed_seconds"] > 1.05 * told["iteration_seconds"]
    assert told["predicted"] is None
    assert any("its replay is" in reason and "longer" in reason for reason in told["lacks"])
    assert np.isfinite(told["iteration_seconds"])
