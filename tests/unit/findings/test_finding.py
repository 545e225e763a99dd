import json
import math
from dataclasses import replace

from stallpoint.findings.finding import Finding, in_json, in_markdown

UNSURE = Finding(
    "verdict", "alexnet on cpu", "undecided whether 4 nodes gain", "undecided", value=1.2, low=1.0, high=1.5, unit="s",
    evidence="3 visits", ask="visits to n = 2, 4", about={"network": "alexnet"},
)  # fmt: skip


def test_a_line_names_its_subject_and_a_label_that_says_more_than_the_kind() -> None:
    beyond = replace(UNSURE, kind="beyond", label="beyond 4 nodes", words="withheld")
    helped = replace(UNSURE, kind="would help", label="would help", words="faster links")
    assert list(in_markdown([UNSURE, Finding("trust", "", "2 visits"), beyond, helped])) == [
        "alexnet on cpu: undecided whether 4 nodes gain",
        "2 visits",
        "alexnet on cpu, beyond 4 nodes: withheld",
        "alexnet on cpu: faster links",
    ]


def test_an_estimate_has_its_interval_and_unit() -> None:
    assert UNSURE.estimate == "1.2 s (1.0–1.5)"
    assert Finding("verdict", "", "", value=2.0, low=1.5).estimate == "2.0 (1.5–∞)"
    assert Finding("verdict", "", "nothing").estimate == ""


def test_json_holds_every_field_and_no_number_that_json_lacks() -> None:
    (found,) = json.loads(json.dumps(in_json([Finding("fits", "b", "w", value=1.0, high=math.inf)]), allow_nan=False))
    assert (found["kind"], found["value"], found["low"], found["high"]) == ("fits", 1.0, None, None)
    assert in_json([UNSURE])[0]["about"] == {"network": "alexnet"}
