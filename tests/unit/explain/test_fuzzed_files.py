"""Files that are damaged at random: each is answered, or refused in one sentence; never a traceback, never silence."""

import contextlib
import io
from dataclasses import replace
from pathlib import Path

import pytest
from fuzzing import LOG, TABLE

from stallpoint.cli import main
from stallpoint.errors import InputError
from stallpoint_files.answer_page import MAX_CHARTS, to_html
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options
from stallpoint_files.training.logged_counts import workers_by_rates


@pytest.mark.parametrize("count", ["1e999", "9" * 400, "inf", "nan", "-1", "1.5"])
def test_counts_that_are_none_are_named_by_their_line(count: str, tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(TABLE.replace("16,16,710", f"{count},16,710"))
    wrong = io.StringIO()
    with contextlib.redirect_stderr(wrong), pytest.raises(SystemExit) as end:
        main(["explain", str(file)])
    assert end.value.code == 2
    assert f"{file}, line 3: gpus is {count[:40]}" in wrong.getvalue()


def test_digits_that_are_no_number_are_named_by_their_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(LOG.replace("size: 512", "size: " + "5" * 5000, 3))
    wrong = io.StringIO()
    with contextlib.redirect_stderr(wrong), pytest.raises(SystemExit) as end:
        main(["explain", str(file)])
    assert end.value.code == 2
    assert wrong.getvalue().startswith(f"error: {file}, line 1: a number of 5,000 digits")
    file.write_text(LOG.replace("size: 512", "size: " + "5" * 500))
    assert main(["explain", str(file)]) == 3


@pytest.mark.parametrize(
    "text",
    [
        "step_time:\n  1: 0.51\n  2: 0.53\n  4: 0.60\n",
        '"Step","profiling/Time taken: T.gen","profiling/Time taken: T.loss","train/step_time"\n"1","7","3","9"\n',
        "results:\n  - gpus: 8\n    tokens_per_sec: 96000\n  - gpus: 16\n    tokens_per_sec: 185000\n",
        '{"version": "2.5", "pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [{"collective_seq_id": 1}]}\n',
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "  \n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_ends_of_lines_blanks_and_encodings_mean_nothing(text: str, end: str, encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    said = []
    for content in (text.encode(), text.replace("\n", end).encode(encoding)):
        file.write_bytes(content)
        try:
            said.append([one.words for one in explain_files([str(file)], Options()).answers])
        except InputError as error:
            said.append([str(error)])
    assert said[0] == said[1]


@pytest.mark.parametrize(("each", "workers"), [("120.5", 8), ("..", None), (".", None), ("0", None), ("964", 1)])
def test_workers_follow_from_both_rates_only_if_both_are_numbers(each: str, workers: int | None) -> None:
    line = f"throughput/samples_per_sec: 964 throughput/device/samples_per_sec: {each}"
    assert workers_by_rates([line]) == workers


def test_a_page_of_many_tables_draws_the_first_and_says_how_many_more(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("\n\n".join(f"gpus,images/s\n1,{rate}\n2,{1.9 * rate}" for rate in range(100, 103 + MAX_CHARTS)))
    found = explain_files([str(file)], Options())
    page = to_html(found)
    assert page.count("<h2>rates, 1-2 GPUs") == len(found.answers) == MAX_CHARTS + 3
    assert f'id="chart-{MAX_CHARTS - 1}"' in page
    assert f'id="chart-{MAX_CHARTS}"' not in page
    assert "3 more curves are not drawn" in page
    assert "more curves" not in to_html(replace(found, answers=found.answers[:MAX_CHARTS]))
