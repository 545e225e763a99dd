"""Timelines as trace events: valid, nested, and with the times of the records."""

import json
from pathlib import Path

import pandas as pd
import pytest
import synthetic
from test_export_trace import WORDS, cell_of
from trace_events import Event, check_nesting, lanes

from stallpoint.archive.timeline_export import export_timeline
from stallpoint.errors import InputError
from stallpoint_traces.formats import trace_formats

RANKS = 4


@pytest.fixture(scope="module")
def tidy() -> dict[str, pd.DataFrame]:
    return synthetic.study(storages=("local",), repeats=1)


@pytest.fixture(scope="module")
def records(tidy: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The records of one run on four ranks, all-reduces during the backward pass."""
    cell = cell_of(tidy, *WORDS, "prefetch~0")
    return {name: frame[frame["cell"] == cell] for name, frame in tidy.items()}


def timeline(records: dict[str, pd.DataFrame], folder: Path) -> list[Event]:
    synthetic.write_raw(records, records["runs"]["cell"].item(), folder / "raw")
    export_timeline(folder / "raw", folder / "timeline.json")
    content = json.loads((folder / "timeline.json").read_text(), parse_constant=lambda text: pytest.fail(text))
    assert set(content) == {"traceEvents", "displayTimeUnit", "otherData"}
    return list(content["traceEvents"])


@pytest.fixture(scope="module")
def events(records: dict[str, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    return timeline(records, tmp_path_factory.mktemp("timeline"))


def test_every_event_is_complete_or_metadata(events: list[Event]) -> None:
    for event in events:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["pid"] > 0
        assert event["tid"] > 0
        if event["ph"] == "X":
            assert {"name", "cat", "ts", "dur", "args"} <= set(event)
            assert event["ts"] >= 0
            assert event["dur"] >= 0
    starts = [event["ts"] for event in events if event["ph"] == "X"]
    assert starts == sorted(starts)


def test_each_rank_is_a_process_with_its_lanes(events: list[Event]) -> None:
    wanted = {"iterations", "data", "compute", "communication"}
    assert set(lanes(events)) == {(f"rank {rank} on node{rank}", lane) for rank in range(RANKS) for lane in wanted}
    threads = [event["tid"] for event in events if event["name"] == "thread_name"]
    assert len(threads) == len(set(threads)) == RANKS * len(wanted)


def test_events_of_a_lane_nest_or_follow_one_another(events: list[Event]) -> None:
    check_nesting(events)


def test_times_are_those_of_the_records(events: list[Event], records: dict[str, pd.DataFrame]) -> None:
    iterations = records["iterations"]
    for rank, rows in iterations.groupby("rank"):
        drawn = lanes(events)
        by_lane = {name: lane for (process, name), lane in drawn.items() if process.startswith(f"rank {rank} ")}
        whole = by_lane["iterations"]
        assert [event["dur"] for event in whole] == pytest.approx(list(1e6 * rows["iteration_time"]), abs=2e-3)
        assert [event["ts"] for event in whole] == pytest.approx(list(1e6 * rows["start"]), abs=2e-3)
        assert whole[0]["name"] == "iteration 0 (warm-up)"
        for name, column in (("forward", "forward"), ("backward", "backward"), ("update", "update"),
                             ("wait for gradients", "exposed_communication")):  # fmt: skip
            took = [event["dur"] for event in by_lane["compute"] if event["name"] == name]
            assert took == pytest.approx(list(1e6 * rows[column]), abs=2e-3)
        waits = [event for event in by_lane["data"] if event["name"] == "wait for data"]
        assert [event["dur"] for event in waits] == pytest.approx(list(1e6 * rows["data_wait"]), abs=2e-3)
        assert [event["args"]["read_us"] for event in waits] == pytest.approx(list(1e6 * rows["read"]), abs=2e-3)


def test_layers_run_forward_and_then_backward(events: list[Event], records: dict[str, pd.DataFrame]) -> None:
    layers = records["layers"]
    first = layers[(layers["rank"] == 0) & (layers["iteration"] == 0)].sort_values("layer_index")
    compute = lanes(events)["rank 0 on node0", "compute"]
    passes = [event for event in compute if event["name"] in ("forward", "backward")][:2]
    for which, order, whole in (("forward", first, passes[0]), ("backward", first[::-1], passes[1])):
        end = whole["ts"] + whole["dur"]
        inside = [event for event in compute if event is not whole and whole["ts"] <= event["ts"] < end]
        assert [event["name"] for event in inside] == list(order["layer"])
        assert [event["dur"] for event in inside] == pytest.approx(list(1e6 * order[which]), abs=3e-3)
        assert inside[-1]["ts"] + inside[-1]["dur"] == pytest.approx(end, abs=2e-3)


def test_all_reduces_stand_with_their_bytes(events: list[Event], records: dict[str, pd.DataFrame]) -> None:
    sent = records["layers"].dropna(subset="all_reduce_start")
    starts = records["iterations"].set_index(["rank", "iteration"])["start"]
    expected = sorted(
        (1e6 * (starts[row.rank, row.iteration] + row.all_reduce_start), row.gradient_bytes)
        for row in sent.itertuples()
    )
    drawn = sorted((event["ts"], event["args"]["bytes"]) for event in events if event.get("cat") == "communication")
    assert [size for _, size in drawn] == [size for _, size in expected]
    assert [ts for ts, _ in drawn] == pytest.approx([ts for ts, _ in expected], abs=2e-3)


def test_a_timeline_is_no_trace_of_a_profiler(records: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    timeline(records, tmp_path)
    with pytest.raises(InputError, match="no event of a profiler"):
        trace_formats.read(tmp_path / "timeline.json")


def test_all_reduces_at_the_same_time_get_lanes_of_their_own(records: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    layers = records["layers"].copy()
    layers.loc[layers["layer"] == "conv1", ["all_reduce_start", "all_reduce_end"]] = (0.01, 0.03)
    layers.loc[layers["layer"] == "conv2", ["all_reduce_start", "all_reduce_end"]] = (0.02, 0.04)
    events = timeline({**records, "layers": layers}, tmp_path)
    assert ("rank 3 on node3", "communication 2") in lanes(events)
    check_nesting(events)
