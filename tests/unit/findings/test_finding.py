import json
import math

from stallpoint.findings.finding import Finding, in_json, in_markdown, on_terminal

UNSURE = Finding(
    "verdict", "alexnet on cpu", "undecided whether 4 nodes gain", "undecided", value=1.2, low=1.0, high=1.5, unit="s",
    evidence="3 visits", ask="visits to n = 2, 4", about={"network": "alexnet"},
)  # fmt: skip


def test_a_line_says_what_it_rests_on_and_what_would_decide_it() -> None:
    sure = Finding("trust", "", "2 visits")
    told = "undecided whether 4 nodes gain (3 visits); visits to n = 2, 4 would decide"
    assert on_terminal([UNSURE, sure]) == [told, "2 visits"]
    assert in_markdown([UNSURE, sure]) == "- alexnet on cpu: undecided whether 4 nodes gain\n- 2 visits"


def test_an_estimate_has_its_interval_and_unit() -> None:
    assert UNSURE.estimate == "1.2 s (1.0–1.5)"
    assert Finding("verdict", "", "", value=2.0, low=1.5).estimate == "2.0 (1.5–∞)"
    assert Finding("verdict", "", "nothing").estimate == ""


def test_json_holds_every_field_and_no_number_that_json_lacks() -> None:
    (found,) = json.loads(json.dumps(in_json([Finding("fits", "b", "w", value=1.0, high=math.inf)]), allow_nan=False))
    assert (found["kind"], found["value"], found["low"], found["high"]) == ("fits", 1.0, None, None)
    assert in_json([UNSURE])[0]["about"] == {"network": "alexnet"}
