import json
import math

from stallpoint.base.section import Cause, Finding
from stallpoint.base.section_texts import in_json, in_terminal
from stallpoint.base.stall import Verdict

UNSURE = Finding(
    "verdict", "alexnet on cpu", "undecided beyond 2 nodes", "undecided", value=1.2, low=1.0, high=1.5, unit="s",
    evidence="3 visits", ask=("visits to n = 2, 4",), about={"network": "alexnet"},
)  # fmt: skip


def test_a_sentence_names_its_subject() -> None:
    assert UNSURE.sentence == "alexnet on cpu: undecided beyond 2 nodes"
    assert Finding("trust", "", "2 visits").sentence == "2 visits"


def test_an_estimate_has_its_interval_and_unit() -> None:
    assert UNSURE.estimate == "1.2 s (1.0–1.5)"
    assert Finding("verdict", "", "", value=2.0, low=1.5).estimate == "2.0 (1.5–∞)"
    assert Finding("verdict", "", "nothing").estimate == ""


def test_json_holds_every_field_and_no_number_that_json_lacks() -> None:
    (found,) = json.loads(json.dumps(in_json([Finding("fits", "b", "w", value=1.0, high=math.inf)]), allow_nan=False))
    assert (found["kind"], found["value"], found["low"], found["high"]) == ("fits", 1.0, None, None)
    assert in_json([UNSURE])[0]["about"] == {"network": "alexnet"}


def test_a_terminal_gets_every_part_of_few_findings_and_the_words_of_many() -> None:
    cause = Cause("link", "the link between nodes", 0.3, "line 7")
    one = Finding("rates", "net", "stalls at 16", Verdict.STALLS, causes=(cause,), evidence="measured", fits="1 -> 2",
                  beyond="32: 3", ask=("a rate on 32",), notes=("odd",))  # fmt: skip
    assert in_terminal([one]).splitlines() == [
        "net: stalls at 16.   measured",
        "  why     the link between nodes; line 7",
        "  fits    1 -> 2",
        "  beyond  32: 3",
        "  next    a rate on 32",
        "  note    odd",
    ]
    many = in_terminal([one] * 30).splitlines()
    assert many == ["net: stalls at 16.   measured"] * 19 + ["... and 11 more: --json has all 30 answers"]
    assert all("why" in "\n".join(in_terminal([one] * count).splitlines()) for count in (3, 6))


def test_what_stalls_or_has_a_cause_and_no_states_is_bad() -> None:
    cause = Cause("link", "the link")
    bad = Finding("rates", "", "", Verdict.STALLS), Finding("link", "", "", causes=(cause,))
    fine = Finding("link", "", ""), Finding("rates", "", "", "scales", causes=(cause,))
    assert [one.is_bad for one in (*bad, *fine)] == [True, True, False, False]
