"""Several ranks and several groups of them: clocks are put together, waiting is told from sending, and only the
data-parallel part is extrapolated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_traces import Planted, in_words

from stallpoint_traces.rank.rank import read_ranks
from stallpoint_traces.trace_answers import explain

PLAIN = Planted(workers=4, iterations=4, loading=0.0, message_bytes=(40_000_000, 50_000_000, 60_000_000, 70_000_000))
FINEST = 2e-6
"""Seconds."""


def told(folder: Path, planted: list[Planted], lost: dict[int, list[int]] | None = None) -> list[dict[str, Any]]:
    """What is told of ranks, of some of which some collectives were lost."""
    files = []
    for rank, one in enumerate(planted):
        path = folder / f"rank{rank}.json"
        sent = [event for event in one.trace()["traceEvents"] if event["name"].startswith("nccl")]
        gone = [id(sent[at % len(sent)]) for at in (lost or {}).get(rank, [])]
        one.events[:] = [event for event in one.events if id(event) not in gone]
        files.append(one.write_events(path))
    return explain(read_ranks(files))


def late_by(*delays: float, **how: Any) -> list[Planted]:
    """Ranks of which each comes to its first message that much before the last one, for which it then waits."""
    return [
        replace(PLAIN, rank=rank, forward=PLAIN.forward - delay, waits=delay, **how)
        for rank, delay in enumerate(delays)
    ]


@settings(max_examples=10)
@given(
    delays=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    skews=st.lists(st.floats(-50, 50), min_size=4, max_size=4),
    lost=st.dictionaries(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=1), max_size=1),
)
def test_ranks_are_put_on_one_clock_and_waiting_is_told_from_sending(
    delays: list[int], skews: list[float], lost: dict[int, list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    waits = [0.0, *(delay * 1e-4 for delay in delays)]
    ranks = [
        replace(one, workers=len(waits), clock=skew)
        for one, skew in zip(late_by(*waits), skews, strict=False)
    ]  # fmt: skip
    found = told(tmp_path_factory.mktemp("ranks"), ranks, lost)
    for one, wait, skew in zip(found, waits, skews, strict=False):
        assert one["clock"]["ahead_seconds"] == pytest.approx(skew - skews[0], abs=FINEST)
        assert one["clock"]["spread_seconds"] < FINEST
        assert one["waits"]["seconds"] == pytest.approx(wait, abs=2 * FINEST)
        (reduced,) = one["groups"][0]["collectives"]
        assert reduced["waiting"] == pytest.approx(wait, abs=2 * FINEST)
        # Where the slowest rank's message is lost, another one is the last of those that are known.
        assert one["waits"]["last"] == pytest.approx(0.0 if wait else 1.0, abs=0.25 if lost else 1e-9)
    if not lost:
        for row in found[0]["predicted"]["workers"]:
            assert row["iteration_seconds"] == pytest.approx(ranks[0].seconds(row["workers"]), rel=2e-3)


def test_what_one_rank_lost_does_not_turn_waiting_into_sending(tmp_path: Path) -> None:
    ranks = late_by(0.0, 3e-3, workers=2)
    found = told(tmp_path, ranks, {0: [0]})
    at = {row["workers"]: row["iteration_seconds"] for row in found[1]["predicted"]["workers"]}
    assert at[16] == pytest.approx(ranks[1].seconds(16), rel=5e-3)


def test_the_time_of_a_group_is_hidden_by_computing_or_exposed(tmp_path: Path) -> None:
    (one,) = told(tmp_path, [PLAIN])
    (group,) = one["groups"]
    (reduced,) = group["collectives"]
    assert (reduced["kind"], reduced["per_iteration"]) == ("AllReduce", 4)
    assert reduced["bytes"] == sum(PLAIN.message_bytes)
    assert reduced["seconds"] == pytest.approx(sum(map(PLAIN.message, PLAIN.message_bytes)), rel=1e-3)
    assert reduced["exposed"] == pytest.approx(PLAIN.exposed(), rel=1e-3)
    assert 0 < reduced["exposed"] < reduced["seconds"]


def test_ranks_that_were_not_traced_are_said_to_be_missing(tmp_path: Path) -> None:
    found = told(tmp_path, late_by(0.0, 1e-3, workers=4))
    assert any("2 of 4 ranks are traced" in note for note in found[0]["notes"])


PARALLEL = replace(PLAIN, each=4, model_parallel=2e-3, iterations=4)


@pytest.mark.parametrize(
    "purposes", [("", "", ""), ("DATA_PARALLEL_GROUP", "mesh_tp", "PIPELINE_MODEL_PARALLEL_GROUP")]
)
def test_parallelism_is_recognised_and_only_its_data_part_extrapolated(
    purposes: tuple[str, str, str], tmp_path: Path
) -> None:
    planted = replace(PARALLEL, purposes=purposes)
    (one,) = told(tmp_path, [planted])
    groups = {group["name"]: (group["parallelism"], group["size"]) for group in one["groups"]}
    assert groups == {"dp": ("data", 4), "tp": ("tensor", 2), "pp": ("pipeline", 2)}
    assert one["world_size"] == 16
    assert one["iteration_seconds"] == pytest.approx(planted.seconds(), rel=1e-5)
    rows = one["predicted"]["workers"]
    assert [row["workers"] for row in rows] == [4, 8, 16, 32, 64, 128]
    for row in rows:
        expected = planted.seconds(row["workers"] // 4)
        assert row["iteration_seconds"] == pytest.approx(expected, rel=2e-3)
    assert rows[2]["speedup"] == pytest.approx(4 * planted.seconds(1) / planted.seconds(4), rel=2e-3)
    text = in_words([one])
    assert "each replica of 4 workers" in text
    assert "tensor (2 ranks)" in text
    assert any("SendRecv of pipeline parallelism (2 ranks)" in note for note in one["notes"])


def test_a_group_of_all_that_sums_activations_is_not_extrapolated(tmp_path: Path) -> None:
    (one,) = told(tmp_path, [replace(PARALLEL, workers=1, each=2, message_bytes=(), backward=0.0)])
    assert {group["parallelism"] for group in one["groups"]} == {"tensor", "pipeline"}
    assert one["predicted"] is None
    assert any("no all-reduce among replicas" in note for note in one["notes"])


def test_norms_of_all_ranks_do_not_hide_the_replicas(tmp_path: Path) -> None:
    planted = replace(PARALLEL)
    trace = planted.trace()["traceEvents"]
    for event in [event for event in trace if event["args"].get("In msg nelems") == 10_000_000]:
        event["args"] |= {"Group size": 16, "Process Group Name": "world"}
    path = planted.write_events(tmp_path / "rank0.json")
    (one,) = explain(read_ranks([path]))
    assert {group["name"]: group["parallelism"] for group in one["groups"]}["world"] == "data"
    assert one["predicted"]["replica_workers"] == 4
    assert np.isfinite(one["predicted"]["workers"][-1]["iteration_seconds"])


HYBRID = replace(
    PLAIN, each=2, model_parallel=2e-3, within_elements=sum(PLAIN.message_bytes) // 2,
    within=(("AllGather", "shard"), ("AllGather", "shard"), ("ReduceScatter", "shard")),
)  # fmt: skip


def test_hybrid_sharding_grows_by_replicas_and_each_worker_has_a_mini_batch(tmp_path: Path) -> None:
    path = HYBRID.write(tmp_path / "rank0.json")
    (one,) = explain(read_ranks([path]), batch=32)
    assert {group["name"]: group["parallelism"] for group in one["groups"]} == {"dp": "data", "shard": "data"}
    rows = {row["workers"]: row for row in one["predicted"]["workers"]}
    assert list(rows) == [2, 4, 8, 16, 32, 64]
    for workers, row in rows.items():
        expected = HYBRID.seconds(workers // 2)
        assert row["iteration_seconds"] == pytest.approx(expected, rel=2e-3)
        assert row["throughput"] == pytest.approx(32 * workers / expected, rel=2e-3)
    assert "FSDP in place of DDP" not in {change["change"] for change in one["predicted"]["what_if"]}
    assert "each worker with its mini-batch" in in_words([one])
    assert any("AllGather of data parallelism (2 ranks)" in note for note in one["notes"])


def test_a_norm_among_nodes_makes_no_hybrid_sharding(tmp_path: Path) -> None:
    planted = replace(HYBRID, message_bytes=(4_000, 4_000))
    (one,) = told(tmp_path, [planted])
    assert one["predicted"]["replica_workers"] == 4
