"""Categories of older profilers and other devices are read or counted; what blocks the host is named by its call."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_traces import Planted, in_words

from stallpoint.errors import InputError
from stallpoint_traces.rank.rank import read_ranks
from stallpoint_traces.trace_answers import explain

BEFORE_2022 = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel", "user_annotation": "Operator"}
MTIA = {"cuda_runtime": "mtia_runtime", "kernel": "mtia_ccp_events"}


def told(planted: Planted, folder: Path, changed: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """What is told of a planted trace of which each event is changed."""
    for event in list(planted.trace()["traceEvents"]):
        changed(event)
    (found,) = explain(read_ranks([planted.write_events(folder / "rank1.json")]))
    return found


@pytest.mark.parametrize("names", [BEFORE_2022, MTIA])
def test_categories_that_mean_the_same_are_read_alike(names: dict[str, str], tmp_path: Path) -> None:
    def renamed(event: dict[str, Any]) -> None:
        event["cat"] = names.get(event["cat"], event["cat"])

    usual, found = told(Planted(), tmp_path, lambda event: None), told(Planted(), tmp_path, renamed)
    assert (found["iterations"], found["notes"]) == (5, usual["notes"])
    assert found["seconds"] == usual["seconds"]
    assert found["predicted"] == usual["predicted"]


def test_copies_and_fills_before_2022_are_no_computing(tmp_path: Path) -> None:
    def copying(event: dict[str, Any]) -> None:
        if event["name"] in ("forward_gemm", "optimizer"):
            event["cat"] = "Memcpy" if event["name"] == "forward_gemm" else "Memset"

    planted = Planted()
    seconds = told(planted, tmp_path, copying)["seconds"]
    assert seconds["compute"] == pytest.approx(planted.backward, rel=1e-4)
    assert seconds["copy"] == pytest.approx(planted.forward + planted.update, rel=1e-4)


def test_events_of_kinds_that_are_not_read_are_counted_and_said(tmp_path: Path) -> None:
    planted = Planted()
    for number, event in enumerate(planted.trace()["traceEvents"]):
        if event["cat"] == "cuda_runtime":
            event["cat"] = "abacus_runtime" if number % 2 else "ABACUS_DRIVER"
    python = {"ph": "X", "cat": "python_function", "name": "main", "ts": 0, "dur": 1, "pid": 1, "tid": 1}
    planted.events.append(python)
    calls = sum(event["cat"].lower().startswith("abacus") for event in planted.events)
    (found,) = explain(read_ranks([planted.write_events(tmp_path / "rank1.json")]))
    (said,) = [note for note in found["notes"] if "are of kinds not read" in note]
    assert said.startswith(f"{calls} of {len(planted.events)} events are of kinds not read (")
    assert "python_function" not in said
    path = tmp_path / "strange.json"
    path.write_text(json.dumps([{**python, "cat": "abacus"}] * 3))
    with pytest.raises(InputError, match=r"no event of a profiler among 3 \(3 of 3 events are of kinds not read"):
        read_ranks([path])


@pytest.mark.parametrize(("call", "seconds"), [("cudaMemcpyAsync", 0.143), ("hipFree", 0.837), ("cudaMalloc", 0.02)])
def test_a_call_that_blocks_the_host_is_named_and_is_not_the_starting_of_operators(
    call: str, seconds: float, tmp_path: Path
) -> None:
    # Between loading and the forward pass, with an idle device, as a copy to pageable memory holds the host.
    planted = Planted(loading=seconds + 2e-3)

    def blocked(event: dict[str, Any]) -> None:
        if "DataLoader" in event["name"]:
            begin = event["ts"] + 2e3
            event["dur"] = 2e3
            planted._add("cpu_op", "aten::copy_", begin, seconds)
            planted._add("cuda_runtime", call, begin, seconds, correlation=0)

    found = told(planted, tmp_path, blocked)
    assert found["seconds"]["host_wait"] == pytest.approx(seconds, rel=1e-3)
    assert found["seconds"]["data_wait"] == pytest.approx(2e-3, rel=1e-3)
    assert found["seconds"]["launch"] == pytest.approx(0.0, abs=1e-6)
    first = found["blocked_by"][0]
    assert (first["call"], first["calls"]) == (call, planted.iterations)
    assert first["seconds"] == first["longest_seconds"] == pytest.approx(seconds, rel=1e-6)
    assert f"The host is blocked in {call} (" in in_words([found])


def test_calls_that_start_operators_do_not_block(tmp_path: Path) -> None:
    found = told(Planted(synchronises=False), tmp_path, lambda event: None)
    assert found["blocked_by"] == []
