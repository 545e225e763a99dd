"""A study that measures nothing: tables of rates from elsewhere go through the whole workflow to a report."""

import json
from collections.abc import Callable

from checkout import Checkout

from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options

SERIES = (
    "made up, 1-16 workers (4 a node) in elsewhere: still gets faster at 16, by 97 % for the last doubling, "
    "91 % efficient"
)


def test_external_tables_alone_run_to_a_report_that_says_what_they_say(
    new_checkout: Callable[..., Checkout], finished: Checkout
) -> None:
    checkout = new_checkout()
    checkout.study = {"study": "tiny", "external_tables": {"elsewhere": "elsewhere.csv"}}
    checkout.write_study()
    ran = checkout.snakemake("--", "results/tiny/conclusions.md")
    assert ran.status == 0, ran.text
    checkout.take_pictures(finished)
    ran = checkout.snakemake("--", "results/tiny/report.html", "results/tiny/slides")
    assert ran.status == 0, ran.text
    assert SERIES in ran.text
    assert SERIES in checkout.results("conclusions.md").read_text()
    found = json.loads(checkout.results("conclusions.json").read_text())
    (row,) = (row for one in found["sections"] if one["name"] == "external" for row in one["findings"])
    assert (row["kind"], row["evidence"], row["value"], row["unit"]) == ("rates", "measured, sure", 16, "workers")
    assert row["beyond"].startswith("32: 28")
    assert "made up" in checkout.results("report.html").read_text()
    (answer,) = explain_files([str(checkout.results())], Options()).answers
    assert f"tiny, {SERIES}".startswith(f"{answer.subject}: {answer.words}")
    assert (answer.verdict, answer.value, answer.unit) == ("scales", 16, "workers")
