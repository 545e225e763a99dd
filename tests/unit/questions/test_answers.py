"""Answers of planted curves: the state, the numbers, the words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from planted_curves import at, causes, curve, remedy, stalls

from stallpoint.base.statistics import Estimate
from stallpoint.questions.answer_question import (
    beyond_in_words,
    gain_in_words,
    loss_in_words,
    rivals_in_words,
    sentence,
    throughput_in_words,
)
from stallpoint.questions.answers import Answer, answers, correct_points, leading
from stallpoint.questions.curves_question import next_in_words, stall_in_words, verdict_in_words
from stallpoint.questions.remedies_question import gain_of_remedy, remedies_in_words
from stallpoint.questions.study_tables import CurveRows, MeasuredCount

ONE: dict[str, Any] = {"largest_measured": 1, "measured_speedup_ranks": 1, "measured": [at(1, 1.0)]}


def answer(*curves: CurveRows) -> Answer:
    """The answer of curves that compete."""
    (found,) = answers(curves)
    return found


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (curve(), "still gets faster at n = 2, speedup 1.8 (1.7–1.9) on n = 2"),
        (curve("stalls", 2), "stops getting faster at n = 2, speedup 1.8 (1.7–1.9) on n = 2"),
        (curve("stalls", 1), "stops getting faster at n = 1, speedup 1.8 (1.7–1.9) on n = 2"),
        (
            curve("undecided", 1, measured_stall={1: 0.3, 2: 0.7}),
            "undecided beyond n = 1, speedup 1.8 (1.7–1.9) on n = 2; "
            "no stall up to n = 2: 70 %, stalls at n = 1: 30 %; visits to 1, 2 workers would decide",
        ),
        (
            curve("undecided", 1, measured_stall={1: 0.3, 2: 0.7}, deciding_time=244.0),
            "undecided beyond n = 1, speedup 1.8 (1.7–1.9) on n = 2; "
            "no stall up to n = 2: 70 %, stalls at n = 1: 30 %; some 4 min of visits to 1, 2 workers would decide",
        ),
        (
            curve("stalls", 1, measured_stall={1: 0.996, 2: 0.004}),
            "stops getting faster at n = 1, speedup 1.8 (1.7–1.9) on n = 2, over 99 % sure",
        ),
        (curve("undecided", 0, **ONE), "undecided: only n = 1 was measured"),
        (
            curve("undecided", 0, **{**ONE, "largest_measured": 3}),
            "undecided: no worker count was measured together with its double",
        ),
        (curve("undecided", 0, **ONE, note="needs two worker counts"), "undecided: needs two worker counts"),
        (curve("withheld", 2, note="cells differ"), "withheld: cells differ"),
        (
            curve(note="most iterations on n = 4 were disturbed"),
            "still gets faster at n = 2, speedup 1.8 (1.7–1.9) on n = 2; "
            "beyond n = 2 withheld, as most iterations on n = 4 were disturbed",
        ),
    ],
)
def test_a_verdict_is_said_in_words(found: CurveRows, words: str) -> None:
    assert verdict_in_words(found) == words


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (curve(), "still gets faster at 2 nodes"),
        (curve("stalls", 2), "stops getting faster at 2 nodes"),
        (curve("stalls", 1), "stops getting faster at 1 node"),
        (
            curve("undecided", 1, measured_stall={1: 0.3, 2: 0.7}, deciding_time=5000.0),
            "undecided beyond 1 node; more than an hour of visits to 1, 2 workers would decide",
        ),
        (curve("undecided", 0, **ONE), "undecided, as only n = 1 was measured"),
        (curve("withheld", 2, note="cells differ"), "withheld, as cells differ"),
    ],
)
def test_an_answer_has_one_of_four_states(found: CurveRows, said: str) -> None:
    assert sentence(answer(found)) == said


def test_workers_of_one_machine_are_no_nodes() -> None:
    assert sentence(answer(curve(one_machine=True))) == "still gets faster at 2 processes"


@pytest.mark.parametrize(("counts", "undecided", "wanted"), [((1, 2, 4, 8), 4, [16]), ((4, 12, 14), 12, [24])])
def test_a_step_is_decided_by_a_further_count_and_not_by_more_visits(
    counts: tuple[int, ...], undecided: int, wanted: list[int]
) -> None:
    found = curve("undecided", undecided, measured_stall={n: float(n == undecided) for n in counts})
    assert found.deciding_ranks == wanted


def test_numbers_of_an_answer_are_those_of_its_fastest_curve() -> None:
    slow, fast = (curve(sync=sync, measured=[at(1, 1.0), at(2, of)]) for sync, of in (("wfbp", 1.6), ("naive", 1.95)))
    assert leading([slow, fast]) is fast
    found = answer(slow, fast)
    assert (found.curve["sync"], len(found.rivals), found.differing) == ("naive", 2, {"sync"})
    assert throughput_in_words(found) == "10 -> 19.5 samples/s"
    assert gain_in_words(found) == (
        "2 are 1.9 (1.8–2.1) times as fast as 1, 98 % efficient; an iteration takes 0.51 s instead of 1 s"
    )


@pytest.mark.parametrize(("low", "words"), [(0.9, "100 % efficient within its interval"), (1.1, "116 % efficient")])
def test_more_than_all_is_efficient_only_where_the_interval_says_so(low: float, words: str) -> None:
    larger = at(2, 2.32)
    larger = larger._replace(efficiency=larger.efficiency._replace(low=low))
    assert f"times as fast as 1, {words};" in gain_in_words(answer(curve(measured=[at(1, 1.0), larger])))


@pytest.mark.parametrize(
    ("width", "expected", "words"),
    [
        (0.38, 0.32, "no cell would tell more; the stalling point is known within a factor of 1.3"),
        (0.0, 0.0, "no cell would tell more; the stalling point is known"),
        (0.38, 0.2, "stalling point within a factor of 1.1, not 1.3"),
    ],
)
def test_a_cell_that_would_tell_no_more_than_is_said_already_is_not_named(
    width: float, expected: float, words: str
) -> None:
    cell = {
        "kind": "train", "ranks": 4, "worker_batch": 8, "narrowing": width - expected, "node_hours": 0.1,
        "width": width, "expected_width": expected, "rank_in_curve": 1,
    }  # fmt: skip
    assert next_in_words(curve(next_cells=[cell])).endswith(words)


@pytest.mark.parametrize(
    ("verdict", "probabilities", "words"),
    [
        ("scales", {"known_stall": {1: 0.0, 2: 0.47, 4: 0.53}, "largest_considered": 4}, "training on 4 nodes would"),
        ("undecided", {"measured_stall": {1: 0.3, 2: 0.7}}, "visits to 1, 2 workers"),
    ],
)
def test_what_is_undecided_is_never_said_to_gain_nothing_by_any_cell(
    verdict: str, probabilities: dict[str, Any], words: str
) -> None:
    cell = {"kind": "train", "narrowing": 0.0, "node_hours": 0.1, "width": 0.38, "expected_width": 0.38,
            "rank_in_curve": 1}  # fmt: skip
    assert next_in_words(curve(verdict, 1, next_cells=[cell], **probabilities)).startswith(words)


def test_what_may_be_as_fast_is_said() -> None:
    fast, near, slow = (curve(measured=[at(1, 1.0), at(2, speedup)]) for speedup in (2.0, 1.95, 1.6))
    assert rivals_in_words(answer(fast)) == ""
    assert rivals_in_words(answer(slow, fast)) == ", the fastest of 2 curves"
    assert rivals_in_words(answer(slow, near, fast)) == ", the fastest of 3 curves, though 1 may be as fast"


def test_the_fastest_curve_answers_even_if_it_is_undecided() -> None:
    open_ = curve("undecided", 1, sync="naive", measured=[at(1, 1.0), at(2, 1.95)])
    assert answer(curve(), open_).curve is open_


def test_a_mini_batch_with_another_verdict_answers_for_itself_under_strong_scaling() -> None:
    small, same, large = curve("stalls", 1, batch=2), curve("stalls", 1, batch=4), curve(batch=16)
    assert {one.batch: one.curve["verdict"] for one in answers([small, large])} == {2: "stalls", 16: "scales"}
    assert [len(one.rivals) for one in answers([small, same, large])] == [2, 1]
    assert answer(small, same).batch == 0, "both say the same"
    weak = (curve(verdict, 1, batch=batch, scaling="weak") for verdict, batch in (("stalls", 2), ("scales", 16)))
    assert answer(*weak).batch == 0, "a mini-batch of each worker competes"


def test_what_stalls_is_read_first_then_what_is_undecided() -> None:
    found = [
        curve(verdict, 1, batch=batch, network=network, measured_stall={1: 0.5, 2: 0.5})
        for network, batch, verdict in (
            ("vgg16", 4, "scales"), ("alexnet", 16, "scales"), ("lenet", 2, "undecided"), ("alexnet", 2, "stalls"),
        )
    ]  # fmt: skip
    order = [(one.curve["network"], one.curve["verdict"]) for one in answers(found)]
    assert order == [("alexnet", "stalls"), ("alexnet", "scales"), ("lenet", "undecided"), ("vgg16", "scales")]


def test_nothing_is_said_of_counts_that_nobody_measured_but_apart() -> None:
    gains, stalled = ({"largest_considered": 64, "known_stall": {8: 1 - share, 64: share}} for share in (0.95, 0.04))
    stall = {"reached": True, "basis": "predicted", "stall_ranks": Estimate(8, 4, 16)}
    assert beyond_in_words(answer(curve(**gains))) == (
        "2 nodes: predicted to gain up to 64, if no cost begins beyond 2"
    )
    found = answer(curve(**stalled, **stall))
    assert beyond_in_words(found) == "2 nodes: predicted to stall at 8 (4–16)"
    sure = answer(curve(**stalled, **stall | {"stall_ranks": Estimate(8, 8, 8)}))
    assert beyond_in_words(sure) == "2 nodes: predicted to stall at 8 (96 % sure)"
    assert beyond_in_words(answer(curve("stalls", 1, **stalled, **stall))) == ""
    doubted = answer(curve(withheld="the model is 57 % off", **gains))
    assert beyond_in_words(doubted) == "2 nodes: withheld: the model is 57 % off"


@pytest.mark.parametrize("likely", [0.58, 0.2])
def test_what_is_not_likely_enough_is_said_with_its_probability(likely: float) -> None:
    changes: dict[str, Any] = {"largest_considered": 64, "known_stall": {8: 1 - likely, 64: likely}}
    changes["stall_ranks"] = Estimate(64 if likely > 0.5 else 8, 8, 64)
    changes |= {"reached": likely < 0.5, "basis": "predicted"}
    found = curve(**changes)
    words = beyond_in_words(answer(found))
    assert words == f"2 nodes: undecided whether it gains up to 64 (P = {likely:.2f})"
    assert stall_in_words(found).startswith("undecided: ")
    assert f"P = {max(likely, 1 - likely):.2f}" in stall_in_words(found)


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_the_fastest_of_many_is_not_faster_for_having_been_chosen(apart: float) -> None:
    """Nine presets, each known to 6 %: alike, or so different that nothing was left to chance."""
    random = np.random.default_rng(9)
    errors, held = [], []
    for _ in range(200):
        true = np.exp(apart * random.standard_normal(9))
        seen = true * np.exp(0.06 / 1.645 * random.standard_normal(9))
        found: list[list[MeasuredCount]] = [[at(1, 1.0), at(2, speedup)] for speedup in seen]
        fastest = int(np.argmax(seen))
        base, chosen = correct_points(found[fastest], [one for place, one in enumerate(found) if place != fastest])
        assert base == found[fastest][0]
        errors.append(np.log(chosen.speedup.value / true[fastest]))
        held.append(chosen.speedup.low <= true[fastest] <= chosen.speedup.high)
        assert chosen.rate.value == pytest.approx(10 * chosen.speedup.value)
        assert chosen.seconds.value * chosen.speedup.value == pytest.approx(1.0)
    # Without a correction the best of nine equal ones is 1.49 standard deviations, 5.4 %, too fast.
    assert abs(np.mean(errors)) < 0.03
    assert np.mean(held) > 0.82


# --- why, and what would help ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (causes("dominant", **{"shared hardware": 0.05}), "most is lost to shared hardware: 50 ms (25–100) of 560 ms"),
        (causes("not distinguishable", straggling=0.05, update=0.05), "undecided: straggling or update"),
        (causes("not distinguishable", a=0.05, b=0.05, c=0.05), "undecided: a, b or c"),
        (causes("not distinguishable", a=0.05, b=0.0, c=0.0), "undecided: a, b or c"),
        (
            causes("not distinguishable", a=0.05, b=0.04, c=0.03, d=0.02),
            "undecided between 4 causes; the largest are a, b and c",
        ),
        (
            causes("not distinguishable", **{"shared hardware": 0.05}, straggling=0.0),
            "undecided: shared hardware or straggling; workers slow each other down: cores, caches, memory or clock",
        ),
        (
            causes("not distinguishable", **{"small matrices": 0.05, "model update": 0.05}),
            "undecided: small matrices or model update; "
            "a smaller mini-batch takes less work, but not as much less time",
        ),
        (causes("not distinguishable", update=0.05), "update, not distinguishable from no loss"),
        (causes("not distinguishable", update=-0.05), "no loss beyond what visits differ by"),
    ],
)
def test_the_largest_loss_is_named_or_those_that_may_be_it(rows: Sequence[dict[str, Any]], words: str) -> None:
    found = answer(curve(causes=rows))
    assert found.loss
    assert loss_in_words(found.loss, found) == words


def test_causes_are_those_that_were_measured() -> None:
    assert answer(curve(causes=causes("dominant", basis="predicted", update=0.05))).loss is None


def test_what_would_help_are_the_first_remedies_that_gain_for_sure() -> None:
    found = [
        remedy("more readers", 1.3, 1.6), remedy("still more readers", 1.2, 1.5, changes="more readers"),
        remedy("no launches", 1.2, 1.4, upper_bound=True), remedy("faster links", 0.9, 1.5),
    ]  # fmt: skip
    words = "more readers: +60 % (30–100); no launches: at most +40 % (20–100) (predicted, 2 workers)"
    assert remedies_in_words(curve(remedies=found)) == words
    assert remedies_in_words(curve(remedies=found, withheld="the model is off")) == ""
    assert remedies_in_words(curve(remedies=[])) == ""


@pytest.mark.parametrize(
    ("value", "low", "high", "words"),
    [
        (1.00004, 0.85, 1.16, "no difference within ± 16 %"), (1.0, 1.0, 1.0, "no difference within ± 1 %"),
        (1.06, 0.9, 1.22, "+6.0 % (-10 to 22)"), (1.004, 1.002, 1.006, "+0.40 % (0.20–0.60)"),
    ],
)  # fmt: skip
def test_a_gain_that_may_be_none_is_told_by_its_width(value: float, low: float, high: float, words: str) -> None:
    assert gain_of_remedy(remedy("any", low, value, high=high)) == words


def test_what_trains_something_else_says_so_by_its_name() -> None:
    also = "a target may take more samples"
    sure, open_ = (remedy("4 × the mini-batch", low, 1.6, also=also) for low in (1.3, 0.9))
    more = remedy("more readers", 0.9, 1.5, also="as many more cores")
    assert remedies_in_words(curve(remedies=[sure])).startswith(f"4 × the mini-batch ({also}): +60 %")
    words = f"undecided whether 4 × the mini-batch ({also}) or more readers (predicted, 2 workers)"
    assert remedies_in_words(curve(remedies=[open_, more])) == words


def test_remedies_that_may_gain_nothing_are_undecided() -> None:
    found = [remedy("faster links", 0.9, 1.5), remedy("huge", 1.5, 1.6, verdict="does not fit")]
    assert remedies_in_words(curve(remedies=found)) == "undecided whether faster links (predicted, 2 workers)"


def test_outcomes_that_draws_do_not_resolve_are_not_named() -> None:
    assert stalls({1: 0.996, 2: 0.004}) == "stalls at n = 1: over 99 %"
