"""The page of several ranks says first what they show together; what predictions take for granted stands on it."""

from dataclasses import replace
from pathlib import Path

import pytest
from planted_traces import Planted, in_words

from stallpoint.errors import InputError
from stallpoint.records.tables import PROBES
from stallpoint_files.answer_page import to_html
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options
from stallpoint_files.studies.study_results import probe_folder
from stallpoint_traces.formats.trace_formats import trace_files
from stallpoint_traces.rank.rank import Rank, read_ranks
from stallpoint_traces.trace_answers import explain
from stallpoint_traces.trace_page import COMPUTE, HOST, spans

PLAIN = Planted(workers=3, loading=0.0, message_bytes=(40_000_000, 50_000_000, 60_000_000, 70_000_000))


def written(folder: Path, *waits: float) -> list[Path]:
    """Traces of ranks that wait so long for the one that comes last."""
    ranks = [replace(PLAIN, rank=rank, forward=PLAIN.forward - wait, waits=wait) for rank, wait in enumerate(waits)]
    return [one.write(folder / f"rank{one.rank}.json") for one in ranks]


def test_several_ranks_are_one_line_and_one_chart_first_and_each_on_demand(tmp_path: Path) -> None:
    found = explain_files([str(file) for file in written(tmp_path, 3e-3, 0.0, 1e-3)], Options())
    sent = sum(map(PLAIN.message, PLAIN.message_bytes))
    share = 100 * sum(wait / (sent + wait) for wait in (3e-3, 0.0, 1e-3)) / 3
    line = "Of 3 ranks rank 1 comes last most often, to 100 % of the collectives in which any rank waits; of "
    line += f"communication {share:.2g} % is waiting for other ranks."
    assert line in found.answers[0].notes
    text = to_html(found)
    body = text[text.index("<h1>") :]
    places = [
        body.index(part) for part in (line, 'id="chart-0"', "<details><summary>rank0.json", "rank2.json: rank 2 of 3")
    ]
    assert places == sorted(places)
    assert body.count("<details><summary>rank") == 3
    assert "time goes to, on each rank" in body
    # Charts of what is closed are drawn when it is opened.
    assert 'closest("details:not([open])")' in body


def test_the_page_says_what_its_predictions_take_for_granted(tmp_path: Path) -> None:
    text = to_html(explain_files([str(PLAIN.write(tmp_path / "rank1.json"))], Options()))
    assert "over links like those traced" in text
    assert "Link: α" in text
    assert "<details><summary>rank1" not in text


def test_the_host_of_a_device_does_not_compute(tmp_path: Path) -> None:
    ((_, rank),) = read_ranks([PLAIN.write(tmp_path / "rank1.json")])
    assert isinstance(rank, Rank)
    kinds = {one.kind for one in spans(rank, 1) if one.lane == "host"}
    assert HOST in kinds
    assert COMPUTE not in kinds


def test_iterations_by_the_period_of_kernels_may_be_parts_of_one(tmp_path: Path) -> None:
    (told,) = explain(read_ranks([replace(PLAIN, marked=False, iterations=8).write(tmp_path / "rank1.json")]))
    assert any("period of kernels, and may be parts of one" in note for note in told["notes"])


def test_subfolders_are_searched(tmp_path: Path) -> None:
    for folder in ("node1", "node2/gpu0"):
        (tmp_path / folder).mkdir(parents=True)
    first = PLAIN.write(tmp_path / "node1" / "rank0.json")
    second = PLAIN.write(tmp_path / "node2" / "gpu0" / "rank1.json.gz")
    assert trace_files([str(tmp_path)]) == [first, second]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file, in subfolders neither, ends in"):
        trace_files([str(tmp_path / "empty")])


def test_ranks_whose_collectives_are_not_the_same_tell_no_waiting(tmp_path: Path) -> None:
    files = [
        PLAIN.write(tmp_path / "rank0.json"),
        replace(PLAIN, message_bytes=(4_000,)).write(tmp_path / "rank1.json"),
    ]
    told = explain(read_ranks(files))
    assert all(one["waits"] is None for one in told)
    assert all(any("no collectives are the same" in note for note in one["notes"]) for one in told)
    assert "comes last" not in in_words(told)


def test_a_folder_of_tables_and_logs_is_read_like_its_files(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for workers, rate in ((8, 1000), (16, 1900)):
        text = f"world_size={workers}\nstep 1 | {rate} samples/s\nstep 2 | {rate} samples/s\n"
        (tmp_path / "runs" / f"n{workers}.log").write_text(text)
    (tmp_path / "notes.md").write_text("nothing to read\n")
    (one,) = explain_files([str(tmp_path)], Options()).answers
    assert [point["rate"] for point in one.points if "rate" in point] == [1000, 1900]
    assert "notes.md" in one.notes[-1]
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "notes.md").write_text("nothing to read\n")
    with pytest.raises(InputError, match=r"notes\.md, line 1: .*nothing that is known"):
        explain_files([str(tmp_path / "alone")], Options())


def test_a_table_beside_the_records_of_a_probe_is_a_table(tmp_path: Path) -> None:
    start = tmp_path / "rank~0" / "start"
    start.mkdir(parents=True)
    (start / f"{PROBES.name}.parquet").write_bytes(b"")
    (tmp_path / "rates.csv").write_text("gpus,images/s\n1,100\n2,190\n")
    (one,) = explain_files([str(tmp_path / "rates.csv")], Options()).answers
    assert one.kind == "rates"
    assert probe_folder(start / f"{PROBES.name}.parquet") == tmp_path
