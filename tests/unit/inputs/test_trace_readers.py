"""Formats of traces beside Kineto's: the same training is explained alike, and what a format lacks is said."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trace_samples as samples
from hypothesis import given
from hypothesis import strategies as st
from planted_traces import Planted, in_words

from stallpoint.errors import InputError
from stallpoint.inputs.documents import head
from stallpoint_traces.formats.trace_formats import FORMATS, read, trace_files
from stallpoint_traces.rank.rank import read_ranks
from stallpoint_traces.trace_answers import explain

ROUND = replace(Planted(), message_bytes=(40_000_000, 20_000_000, 400_000, 60_000_000))


def told(path: Path, workers: int | None = None) -> dict[str, Any]:
    (found,) = explain(read_ranks([path], workers))
    return found


WRITERS: dict[str, Callable[[Path], Path]] = {
    "nsight": lambda path: samples.nsight(ROUND, path),
    "nccl-inspector": lambda path: samples.nccl_inspector(ROUND, path),
    "nccl-profiler": lambda path: samples.nccl_profiler(ROUND, path),
    "kineto": lambda path: ROUND.write(path),
    "chakra": lambda path: samples.chakra(ROUND, path, timed=False),
}


@pytest.mark.parametrize("format", WRITERS)
def test_a_format_is_recognised_by_content_alone(format: str, tmp_path: Path) -> None:
    begin = head(WRITERS[format](tmp_path / "trace.json"))
    first = next(name for name, one in FORMATS.items() if one.recognised(begin))
    assert first == format


def test_a_report_of_nsight_systems_says_what_kineto_does(tmp_path: Path) -> None:
    kineto = told(ROUND.write(tmp_path / "rank1.json"))
    found = told(samples.nsight(ROUND, tmp_path / "rank1.sqlite"), workers=4)
    assert (found["rank"], found["world_size"], found["iterations"]) == (1, 4, 5)
    assert found["seconds"] == pytest.approx(kineto["seconds"], rel=1e-4, abs=1e-6)
    assert found["shares"] == pytest.approx(kineto["shares"], rel=1e-4)
    assert {(row["kind"], row["algorithm"], row["protocol"], row["bytes"]) for row in found["collectives"]} == {
        ("AllReduce", "RING", "LL", size) for size in ROUND.message_bytes
    }
    for mine, theirs in zip(found["predicted"]["workers"], kineto["predicted"]["workers"], strict=True):
        assert mine["iteration_seconds"] == pytest.approx(theirs["iteration_seconds"], rel=1e-3)
    assert any("how many workers" in note for note in found["notes"])


def test_a_report_without_nccls_marks_predicts_nothing(tmp_path: Path) -> None:
    found = told(samples.nsight(ROUND, tmp_path / "rank1.sqlite", sized=False), workers=4)
    assert found["predicted"] is None
    assert any("does not say how large" in note for note in found["notes"])


def test_processes_of_a_report_are_ranks(tmp_path: Path) -> None:
    path = samples.nsight(ROUND, tmp_path / "node.sqlite")
    with sqlite3.connect(path) as database:
        other = 1 << 24
        database.execute(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT start, end, 1, streamId, correlationId, "
            f"globalPid + {other}, demangledName, shortName FROM CUPTI_ACTIVITY_KIND_KERNEL"
        )
    database.close()
    traces = read(path)
    assert [trace.rank for trace in traces] == [0, 1]
    assert len(traces[1].events) == 5 * 10  # kernels alone
    assert traces[0].began == pytest.approx(1.7e9 + 1e-3)


@pytest.mark.parametrize("markers", [False, True])
def test_nccls_inspector_tells_collectives_and_no_computing(markers: bool, tmp_path: Path) -> None:
    found = told(samples.nccl_inspector(ROUND, tmp_path / "node-pid1.log", markers=markers))
    check_communication_alone(found)
    assert (found["rank"], found["world_size"]) == (1, 4)
    assert markers == any("dropped 2 collectives" in note for note in found["notes"])


def check_communication_alone(found: dict[str, Any]) -> None:
    rows = {row["bytes"]: row for row in found["collectives"]}
    assert set(rows) == set(ROUND.message_bytes)
    for size, row in rows.items():
        assert (row["kind"], row["algorithm"], row["protocol"]) == ("AllReduce", "RING", "LL")
        assert row["seconds"] == pytest.approx(ROUND.message(size), abs=3e-6)
    assert found["iteration_seconds"] == pytest.approx(ROUND.seconds(), abs=3e-6)
    assert found["seconds"] is found["shares"] is found["predicted"] is None
    assert any("only communication was traced" in note for note in found["notes"])
    assert "computing" not in in_words([{**found, "notes": []}])


def test_inspectors_lines_without_times_are_refused_with_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="NCCL_INSPECTOR_DUMP_VERBOSE=1"):
        read(samples.nccl_inspector(ROUND, tmp_path / "node.log", verbose=False))


def test_nccls_example_plugin_tells_the_same(tmp_path: Path) -> None:
    found = told(samples.nccl_profiler(ROUND, tmp_path / "plugin-1.txt"), workers=4)
    check_communication_alone(found)


@pytest.mark.parametrize("timed", [False, True])
def test_an_execution_trace_of_chakra_is_scheduled_by_its_graph(timed: bool, tmp_path: Path) -> None:
    found = told(samples.chakra(ROUND, tmp_path / "chakra.1.et", timed=timed))
    whole = ROUND.seconds() - ROUND.loading
    assert (found["rank"], found["world_size"], found["iterations"]) == (1, 4, 1)
    assert found["iteration_seconds"] == pytest.approx(whole, abs=1e-5)
    computing = ROUND.forward + ROUND.backward + ROUND.update
    assert found["seconds"]["compute"] == pytest.approx(computing, abs=1e-5)
    assert found["seconds"]["exposed_communication"] == pytest.approx(ROUND.exposed(), abs=1e-5)
    assert found["replayed_seconds"] == pytest.approx(whole, rel=1e-3)
    assert {row["bytes"] for row in found["collectives"]} == set(ROUND.message_bytes)
    at = {row["workers"]: row["iteration_seconds"] for row in found["predicted"]["workers"]}
    # Where it says when the host did anything, the host takes as long at fewer workers.
    for p in (16,) if timed else (1, 2, 16):
        assert at[p] == pytest.approx(ROUND.seconds(p) - ROUND.loading, rel=0.01)
    assert timed != any("does not say when anything began" in note for note in found["notes"])


def test_an_execution_trace_as_json_says_the_same(tmp_path: Path) -> None:
    binary, text = (told(samples.chakra(ROUND, tmp_path / f"rank1.{suffix}", timed=False)) for suffix in ("et", "json"))
    assert text["iterations"] == 1
    assert {**text, "file": ""} == {**binary, "file": ""}


def test_what_calls_what_orders_nothing(tmp_path: Path) -> None:
    # As in Chakra's own test trace: an operator that needs what one that it calls has computed.
    trace = samples.Chakra()
    trace.add("aten::linear", 2, after=[2], on_host=True)
    trace.add("aten::addmm", 3, on_host=True, called_by=[1])
    (found,) = read(trace.write(tmp_path / "calls.et"))
    started = dict(zip(found.events.text(found.events.name), found.events.start.tolist(), strict=True))
    assert started["aten::linear"] - started["aten::addmm"] == pytest.approx(3e-6)


def test_metadata_may_be_longer_than_the_part_that_a_format_is_told_by(tmp_path: Path) -> None:
    for length in (3_990, 4_080, 4_084, 4_090, 100_000):
        trace = samples.Chakra("x" * length)
        trace.add("aten::mm", 5, on_host=True)
        (found,) = read(trace.write(tmp_path / "long.et"))
        assert "aten::mm" in found.events.texts


def test_pytorchs_execution_trace_is_named_as_one_without_times(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_et.json"
    node = {"id": 2, "name": "aten::mm", "ctrl_deps": 1, "inputs": {"values": [], "shapes": [], "types": []},
            "attrs": [{"name": "rf_id", "type": "uint64", "value": 0}]}  # fmt: skip
    path.write_text(json.dumps({"schema": "1.1.0-chakra.0.0.4", "pid": 7, "start_ts": 1, "nodes": [node]}, indent=2))
    with pytest.raises(InputError, match=r"PyTorch's own execution trace.*give a trace"):
        read(path)


def test_as_many_execution_traces_are_as_many_ranks(tmp_path: Path) -> None:
    files = [samples.chakra(ROUND, tmp_path / f"trace.{rank}.et", timed=False, grouped=False) for rank in range(4)]
    found = explain(read_ranks(files))
    assert [(one["rank"], one["world_size"], one["missing_ranks"]) for one in found] == [(n, 4, 0) for n in range(4)]
    at = {row["workers"]: row["iteration_seconds"] for row in found[0]["predicted"]["workers"]}
    assert at[16] == pytest.approx(ROUND.seconds(16) - ROUND.loading, rel=0.01)
    assert told(files[0])["world_size"] == 1


def test_a_graph_with_a_circle_is_refused(tmp_path: Path) -> None:
    trace = samples.Chakra()
    trace.add("one", 1, after=[2])
    trace.add("two", 1, after=[1])
    with pytest.raises(InputError, match="2 nodes depend on one another"):
        read(trace.write(tmp_path / "circle.et"))


@given(format=st.sampled_from([*WRITERS]), data=st.data())
def test_what_is_cut_off_is_read_in_part_or_refused_in_words(
    format: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"{format}.trace"
    if not path.exists():
        WRITERS[format](path)
    whole = path.read_bytes()
    part = path.with_suffix(".part")
    cut = data.draw(st.integers(0, len(whole) - 1))
    part.write_bytes(whole[:cut])
    try:
        (found,) = read(part)
    except InputError as error:
        said = str(error)
    else:
        said = f"{part}: {len(found.events)} events"
        assert found.events.seconds.min() >= 0
    assert str(part) in said


def test_other_files_of_a_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "slurm.log").write_text("srun: job 1 started\n")
    (tmp_path / "notes.txt").write_text("")
    mine = samples.nccl_inspector(ROUND, tmp_path / "node-pid1.log")
    assert trace_files([str(tmp_path)]) == [mine]
