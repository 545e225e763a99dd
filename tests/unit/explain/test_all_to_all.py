"""NCCL runs an all-to-all as sends and receives: what the program called around a kernel tells what it is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted_traces import CALL, Planted, in_words

from stallpoint_traces.rank.rank import read_ranks
from stallpoint_traces.trace_answers import explain

SENT = 3 * (("SendRecv", ""),)
PIPELINE, EMBEDDING = "pipeline", "expert or embedding"


def told(folder: Path, around: tuple[str, ...], **how: Any) -> dict[str, Any]:
    """What is told of exchanges whose kernels say nothing, with operators and marks around their calls."""
    planted = Planted(within=SENT, model_parallel=1e-3, **how)
    events = planted.trace()["traceEvents"]
    kernels = {
        event["args"]["correlation"]: event for event in events if event["name"].startswith("ncclDevKernel_SendRecv")
    }
    for event in [event for event in events if event["cat"] == "cuda_runtime"]:
        if kernel := kernels.get(event["args"].get("correlation")):
            kernel["args"] = {name: kernel["args"][name] for name in ("stream", "correlation", "device")}
            for depth, name in enumerate(around):
                kind = "cpu_op" if name.startswith("c10d::") else "user_annotation"
                planted._add(kind, name, event["ts"] - 0.004 + 0.001 * depth, 8e-9)
                planted.events[-1]["args"] = {"Input Dims": [[500_000]], "Input type": ["c10::Half"]}
    (found,) = explain(read_ranks([planted.write_events(folder / "rank1.json")]))
    return found


@pytest.mark.parametrize(
    "around", [("c10d::alltoall_", "nccl:all_to_all"), ("c10d::alltoall_base_",), ("nccl:all_to_all",)]
)
def test_an_all_to_all_is_told_by_what_called_it_and_is_no_pipeline(around: tuple[str, ...], tmp_path: Path) -> None:
    found = told(tmp_path, around)
    rows = [row for row in found["collectives"] if row["kind"] == "AllToAll"]
    assert sum(row["per_iteration"] for row in rows) == 3
    if around[-1].startswith("nccl:"):
        assert [row["bytes"] for row in rows] == [1_000_000]
    assert {group["parallelism"] for group in found["groups"]} == {"data", EMBEDDING}
    assert PIPELINE not in in_words([found])
    assert any("all workers exchange with all" in reason for reason in found["lacks"])


def test_sends_that_the_program_called_are_a_pipeline_and_a_kernel_alone_tells_nothing(tmp_path: Path) -> None:
    called = told(tmp_path, ("c10d::send", "nccl:send 0->1"))
    assert {group["parallelism"] for group in called["groups"]} == {"data", PIPELINE}
    silent = told(tmp_path, ())
    assert {group["parallelism"] for group in silent["groups"]} == {"data", None}


def test_what_a_mark_says_holds_for_the_calls_within_it_alone(tmp_path: Path) -> None:
    found = told(tmp_path, ("nccl:all_to_all",), sized=False)
    rows = {(row["kind"], row["bytes"]): row["per_iteration"] for row in found["collectives"]}
    assert rows == {("AllToAll", 1_000_000): 3, ("AllReduce", None): 4}


def ahead(planted: Planted) -> None:
    """Let the host start all of an iteration at its beginning, so that it is no limit."""
    begin, count = 0.0, 0
    for event in planted.events:
        if event["name"].startswith("ProfilerStep"):
            begin, count = event["ts"] + 1e6 * planted.loading, 0
        if event["cat"] == "cuda_runtime":
            count += 1
            early = begin + count * CALL
            if event["name"] == "cudaDeviceSynchronize":
                event["dur"] += event["ts"] - early
            event["ts"] = early


@pytest.mark.parametrize(
    ("per_node", "counts"), [(8, [1, 2, 4, 8]), (64, [1, 2, 4, 8, 16, 32]), (2, [1, 4, 8, 16, 32])]
)
def test_an_exchange_among_all_grows_by_what_leaves_a_worker_and_ends_at_the_node_boundary(
    per_node: int, counts: list[int], tmp_path: Path
) -> None:
    planted = Planted(within=3 * (("AllToAll", "ep"),), model_parallel=1e-3, purposes=("", "expert", "expert"))
    for event in planted.trace()["traceEvents"]:
        if event["args"].get("Process Group Name") == "ep":
            event["args"]["Group size"] = planted.workers
    ahead(planted)
    (found,) = explain(read_ranks([planted.write_events(tmp_path / "rank1.json")]), per_node=per_node)
    rows = {row["workers"]: row["iteration_seconds"] for row in found["predicted"]["workers"]}
    assert list(rows) == counts
    for count, seconds in rows.items():
        grown = (1 - 1 / count) / (1 - 1 / planted.workers)
        truth = replace(planted, model_parallel=grown * planted.model_parallel).seconds(count)
        assert seconds == pytest.approx(truth, rel=2e-3)
    assert any("all workers exchange with all" in note for note in found["notes"]) == (per_node < 64)
    assert not any("AllToAll of expert" in note for note in found["notes"])
