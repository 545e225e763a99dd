"""Profiler traces: read whole whatever is wrong with them, and explained as they were planted."""

import gzip
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_traces import BETA, Planted, in_words

from stallpoint.base.stall import Verdict
from stallpoint.cli import main
from stallpoint.errors import InputError
from stallpoint_traces.formats import kineto, trace_formats
from stallpoint_traces.formats.events import UNKNOWN, Trace
from stallpoint_traces.formats.trace_formats import trace_files
from stallpoint_traces.other_worker_counts import worker_counts
from stallpoint_traces.rank.intervals import intersection, length, union, without
from stallpoint_traces.rank.rank import read_ranks
from stallpoint_traces.trace_answers import explain
from stallpoint_traces.trace_words import findings

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=12)


def moments(found: list[tuple[int, int]]) -> set[int]:
    return {at for start, size in found for at in range(start, start + size)}


@given(spans, spans)
def test_intervals_are_sets_of_moments(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    first, second = (union([s for s, _ in of], [s + n for s, n in of]) for of in (one, other))
    assert length(first) == len(moments(one))
    assert length(intersection(first, second)) == len(moments(one) & moments(other))
    assert length(without(first, second)) == len(moments(one) - moments(other))
    assert (np.diff(first.ravel()) > 0).all()


def read(path: Path) -> Trace:
    (found,) = trace_formats.read(path)
    return found


def only(path: Path, **more: Any) -> dict[str, Any]:
    (found,) = explain(read_ranks([path]), **more)
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return only(Planted().write(tmp_path_factory.mktemp("trace") / "trace.json.gz"))


def test_iterations_and_causes_are_those_planted(told: dict[str, Any]) -> None:
    planted = Planted()
    assert (told["rank"], told["world_size"], told["iterations"]) == (1, 4, 5)
    assert told["iteration_seconds"] == pytest.approx(planted.seconds(), rel=1e-6)
    seconds = told["seconds"]
    computing = planted.forward + planted.backward + planted.update
    expected = {"compute": computing, "exposed_communication": planted.exposed(), "data_wait": planted.loading}
    for name, value in expected.items():
        assert seconds[name] == pytest.approx(value, rel=1e-4)
    assert sum(seconds.values()) == pytest.approx(told["iteration_seconds"], rel=1e-6)


def test_shares_leave_out_the_last_step_as_their_definition_does(told: dict[str, Any]) -> None:
    planted = Planted()
    whole = 4 * planted.seconds() - planted.loading  # four iterations, from the first kernel on
    computing = 4 * (planted.forward + planted.backward + planted.update)
    assert told["shares"]["compute"] == pytest.approx(100 * computing / whole, rel=1e-4)
    assert told["shares"]["non_compute"] == pytest.approx(100 * 4 * planted.exposed() / whole, rel=1e-4)
    assert sum(told["shares"][name] for name in ("idle", "compute", "non_compute")) == pytest.approx(100)
    sent = sum(map(planted.message, planted.message_bytes))
    assert told["shares"]["overlap"] == pytest.approx(100 * (1 - planted.exposed() / sent), rel=1e-3)


def test_collectives_say_what_was_sent(told: dict[str, Any]) -> None:
    found = {row["bytes"]: row for row in told["collectives"]}
    assert set(found) == set(Planted().message_bytes)
    row = found[20_000_000]
    assert (row["kind"], row["algorithm"], row["protocol"]) == ("AllReduce", "RING", "LL")
    assert (row["group_size"], row["per_iteration"]) == (4, 1)
    assert row["seconds"] == pytest.approx(Planted().message(20_000_000), rel=1e-4)


def test_other_worker_counts_are_predicted_by_the_ring(told: dict[str, Any]) -> None:
    planted, found = Planted(), {at["workers"]: at for at in told["predicted"]["workers"]}
    assert list(found) == [1, 2, 4, 8, 16, 32]
    for p, at in found.items():
        assert at["iteration_seconds"] == pytest.approx(planted.seconds(p), rel=1e-3)
        assert at["iteration_seconds_low"] * 0.999 <= planted.seconds(p) <= at["iteration_seconds_high"] * 1.001
        assert at["throughput"] == pytest.approx(p / planted.seconds(p), rel=1e-3)


def test_half_the_bytes_gain_what_they_would(told: dict[str, Any]) -> None:
    planted = Planted()
    half = Planted(message_bytes=tuple(size // 2 for size in planted.message_bytes))
    (gain,) = [at for at in told["predicted"]["what_if"] if at["change"] == "half the bytes"]
    assert told["predicted"]["what_if_workers"] == 32
    assert "FSDP in place of DDP" in {change["change"] for change in told["predicted"]["what_if"]}
    assert gain["throughput_factor"] == pytest.approx(planted.seconds(32) / half.seconds(32), rel=1e-3)


def test_waiting_for_other_ranks_is_not_taken_for_the_link(tmp_path: Path) -> None:
    late = Planted(waits=4e-3)
    found = only(late.write(tmp_path / "trace.json"))
    at = {row["workers"]: row["iteration_seconds"] for row in found["predicted"]["workers"]}
    assert at[4] == pytest.approx(late.seconds(), rel=1e-4)
    assert at[16] == pytest.approx(late.seconds(16), rel=0.02)


def test_latency_of_a_ring_may_stall_and_large_messages_do_not(tmp_path: Path) -> None:
    # Rounds of a ring grow with the workers, those of trees do not, and NCCL may turn to them; and of one rank's
    # messages any part may be waiting: this stays open.
    latency = Planted(
        message_bytes=(4_000, 40_000, 400_000) * 50, backward=3e-3, forward=1e-3, loading=0.0, iterations=3
    )
    large = Planted(message_bytes=(4_000, 8_000, 16_000), backward=30e-3)
    stalling, scaling = [
        only(planted.write(tmp_path / f"{name}.json"))["predicted"]
        for name, planted in (("latency", latency), ("large", large))
    ]
    assert stalling["stalling"]["verdict"] == "undecided"
    assert 0.01 < stalling["stalling"]["probabilities"][32] < 0.8
    of_two, of_most = stalling["workers"][1], stalling["workers"][-1]
    assert of_two["iteration_seconds"] == pytest.approx(latency.seconds(2), rel=1e-3)
    assert of_most["speedup_high"] > 3 * of_most["speedup_low"]
    assert (scaling["stalling"]["verdict"], scaling["stalling"]["workers"]) == ("scales", 32)


def test_rates_are_samples_where_the_batch_is_given(tmp_path: Path) -> None:
    found = only(Planted().write(tmp_path / "trace.json"), batch=32)["predicted"]
    assert found["unit"] == "samples/s"
    assert found["workers"][0]["throughput"] == pytest.approx(32 / Planted().seconds(1), rel=1e-3)


def test_iterations_are_found_without_marks(tmp_path: Path) -> None:
    planted = Planted(marked=False, iterations=8)
    found = only(planted.write(tmp_path / "trace.json"))
    assert found["iterations"] in (6, 7)
    assert found["iteration_seconds"] == pytest.approx(planted.seconds(), rel=1e-4)
    assert any("period of kernels" in note for note in found["notes"])


def test_a_mark_that_a_file_repeats_is_one_iteration(tmp_path: Path) -> None:
    planted, path = Planted(), tmp_path / "trace.json"
    trace = planted.trace()
    marks = [event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep")]
    trace["traceEvents"] += marks[:1] * 50
    path.write_text(json.dumps(trace))
    found, usual = only(path), only(planted.write(tmp_path / "usual.json"))
    assert (found["iterations"], found["iteration_seconds"]) == (usual["iterations"], usual["iteration_seconds"])


@pytest.mark.parametrize(
    "how", [{}, {"indent": 1}, {"indent": 2, "separators": (" ,", " : ")}, {"separators": (",", ":")}]
)
def test_pieces_are_cut_between_events_however_it_is_written(
    how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Planted().write(tmp_path / "trace.json", **how)
    whole = read(path).events
    monkeypatch.setattr(kineto, "PIECE", 777)
    in_pieces = read(path).events
    assert len(whole) == len(in_pieces) == len(Planted().trace()["traceEvents"])
    for name in ("start", "seconds", "correlation"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(in_pieces, name))
    assert whole.each_payload == in_pieces.each_payload
    assert whole.text(whole.name) == in_pieces.text(in_pieces.name)


def test_a_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "rank-3.json"
    path.write_text(json.dumps(Planted().trace()["traceEvents"]))
    trace = read(path)
    assert (trace.rank, trace.world_size) == (3, 1)
    assert any("its name says 3" in note for note in trace.notes)


def test_a_number_that_no_column_holds_is_not_known(tmp_path: Path) -> None:
    trace = Planted().trace()
    event = next(event for event in trace["traceEvents"] if event["args"].get("correlation"))
    event["args"] |= {"stream": 10**30, "correlation": -(2**63) - 1}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    whole = read(path).events
    assert len(whole) == len(trace["traceEvents"])
    assert np.sum(whole.correlation == UNKNOWN) == 1 + np.sum(read(Planted().write(path)).events.correlation == UNKNOWN)


def test_what_is_cut_off_is_noted_and_the_rest_is_read(tmp_path: Path) -> None:
    path, count = Planted().write(tmp_path / "trace.json"), len(Planted().trace()["traceEvents"])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    trace = read(path)
    assert 0.4 * count < len(trace.events) < 0.6 * count
    assert any("ends in the middle of an event" in note for note in trace.notes)


@pytest.mark.parametrize("broken", [b"", b"}{", b'{"ph": X}'])
def test_a_break_is_found_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bytes) -> None:
    event = json.dumps({**Planted().trace()["traceEvents"][1], "args": {"Input Dims": [[1, 2], [3]]}}).encode()
    tries, events = Counter[str](), kineto._events

    def counted(text: bytes) -> Any:
        tries["events"] += 1
        return events(text)

    monkeypatch.setattr(kineto, "_events", counted)
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"traceEvents": [' + b", ".join([event] * 200) + b", " + broken + event[:-9])
    found = read(path)
    assert len(found.events.start) >= 199
    assert tries["events"] < 5
    assert any("middle of an event" in note for note in found.notes)


def test_a_broken_archive_gives_what_was_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "PIECE", 4096)
    path = Planted(iterations=40).write(tmp_path / "trace.json.gz")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    trace = read(path)
    assert len(trace.events) > 10
    assert any("damaged" in note for note in trace.notes)


def test_numbers_that_are_no_json_and_texts_for_numbers_are_read(tmp_path: Path) -> None:
    trace = Planted().trace()
    for event in trace["traceEvents"]:
        event["args"] = {**event["args"], "blocks per SM": float("inf"), "Process Group Ranks": [0, 1]}
        event["ts"], event["args"]["Group size"] = str(event["ts"]), "4"
        event["tid"] = [event["tid"]]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    found, usual = read(path).events, read(Planted().write(tmp_path / "usual.json")).events
    np.testing.assert_array_equal(found.start, usual.start)
    assert {one.group_size for one in found.each_payload} == {4, -1}


def test_events_of_negative_duration_are_counted_out(tmp_path: Path) -> None:
    trace = Planted().trace()
    trace["traceEvents"][3]["dur"] = -5
    trace["traceEvents"][4]["ts"] = None
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    assert any(note.startswith("2 events") for note in read(path).notes)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("none", "lacks"), [(1, []), (4, ["its all-reduces take no time"])])
def test_all_reduces_of_no_length_say_nothing_of_the_link(tmp_path: Path, none: int, lacks: list[str]) -> None:
    for rank in (0, 1):
        trace = Planted(rank=rank, workers=2).trace()
        sent = [event for event in trace["traceEvents"] if "nccl" in event["name"]]
        for index, event in enumerate(sent):
            event["dur"] = 0.0 if index % 4 < none else event["dur"]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    for one in explain(read_ranks(trace_files([str(tmp_path)]))):
        assert [said for said in one["lacks"] if "replay" not in said] == lacks


def test_what_a_trace_lacks_is_said_and_not_guessed(tmp_path: Path) -> None:
    unsized = only(Planted(sized=False).write(tmp_path / "unsized.json"))
    assert unsized["predicted"] is None
    assert any("does not say how large" in note for note in unsized["notes"])
    alone = only(Planted(message_bytes=(), workers=1, backward=0.0).write(tmp_path / "alone.json"))
    assert alone["predicted"] is None
    assert any("no all-reduce" in note for note in alone["notes"])
    host = {"traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::{name}", "pid": 1, "tid": 1, "ts": 10.0 * at, "dur": 5}
        for at, name in enumerate(["mm", "relu", "add_"] * 6)
    ]}  # fmt: skip
    path = tmp_path / "host.json"
    path.write_text(json.dumps(host))
    found = only(path)
    assert found["shares"] is None
    assert found["iteration_seconds"] == pytest.approx(30e-6)
    assert found["seconds"]["compute"] == pytest.approx(15e-6)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no json", "no trace in a known format"),
        (b"", "no trace in a known format"),
        (b'{"traceEvents": []}', "no event of a profiler"),
        (b'{"traceEvents": [{"ph": "X", "cat": "other", "ts": 1, "dur": 1}]}', "no event of a profiler among 1"),
        (gzip.compress(b'{"a": 1}', mtime=0), "no traceEvents"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as refused:
        read(path)
    assert str(path) in str(refused.value)


def test_folders_are_searched_and_missing_files_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file, in subfolders neither, ends in"):
        trace_files([str(tmp_path)])
    with pytest.raises(InputError, match="there is no such file"):
        trace_files([str(tmp_path / "missing.json")])
    path = Planted().write(tmp_path / "a.pt.trace.json.gz")
    assert trace_files([str(tmp_path)]) == [path]


def test_the_program_gives_all_of_a_trace_as_json(
    tmp_path: Path, told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(Planted().write(tmp_path / "trace.json.gz")), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["traces"]
    assert found["shares"] == pytest.approx(told["shares"])
    assert found["predicted"]["workers"] == told["predicted"]["workers"]


def test_words_tell_the_prediction(told: dict[str, Any]) -> None:
    (finding,) = findings([told])
    at = told["predicted"]["workers"][-1]
    assert f"32 workers: {at['speedup']:.2g}" in finding.beyond
    assert (finding.verdict, finding.value) == (Verdict.SCALES, 32)


def test_worker_counts_are_doublings_of_one_and_of_those_traced() -> None:
    assert worker_counts(6) == [1, 2, 4, 6, 8, 12, 16, 24, 32, 48]


@pytest.mark.parametrize("law", ["ring", "tree"])
def test_traces_of_several_worker_counts_tell_the_law_of_their_messages(law: str, tmp_path: Path) -> None:
    """Latency and law, of which messages of one size tell nothing on one number of workers."""

    class OfLaw(Planted):
        def message(self, size: int, workers: int | None = None) -> float:
            p = workers or self.workers
            rounds = 2 * (p - 1) if law == "ring" else 2 * math.ceil(math.log2(p))
            return rounds * 1e-3 + 2 * (p - 1) / p * BETA * size

    counts, size = (2, 4, 8), (20_000_000,)
    files = []
    for p in counts:
        of_count = OfLaw(workers=p, message_bytes=size)
        for rank in (0, 1):
            of_count.rank = rank
            trace = of_count.trace()
            text = json.dumps(trace).replace("RING_LL", "LL") if law == "tree" else json.dumps(trace)
            files.append(tmp_path / f"on{p}-rank{rank}.json")
            files[-1].write_text(text)
    told = explain(read_ranks(files))
    for one in told:
        assert one["predicted"]["link"]["source"] == "worker counts"
        assert one["predicted"]["link"]["alpha_seconds"] == pytest.approx(1e-3, rel=0.05)
    most = next(one for one in told if one["world_size"] == 8)["predicted"]
    at = {row["workers"]: row for row in most["workers"]}
    for workers in (16, 64):
        true = OfLaw(workers=workers, message_bytes=size).seconds()
        assert at[workers]["iteration_seconds"] == pytest.approx(true, rel=0.05)
        assert at[workers]["iteration_seconds_low"] <= true <= at[workers]["iteration_seconds_high"]
    assert "by what was sent on several numbers of workers" in in_words(told)
