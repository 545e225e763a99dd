"""What is said of time to a target."""

import numpy as np
import pandas as pd

from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.targets_question import Target, larger_half_in_words, lines, section, summary, targets

PLACE = {"network": "lenet", "hardware": "local", "storage": "train", "target": 0.8, "workers_per_node": 1}


def way(ranks: int, sync: str, time: float, verdict: str, steps: float = 1.0, batch: int = 64) -> dict[str, object]:
    slower = {"slower": time, "more_steps": steps, "longer_steps": time / steps}
    return {
        **PLACE, **slower, "ranks": ranks, "sync": sync, "recipe": "sgd", "batch": batch, "time": time,
        "steps": 100 * steps, "verdict": verdict,
    }  # fmt: skip


TIMES = pd.DataFrame([
    way(1, "wfbp", 2.0, "fastest"),
    way(2, "wfbp", 1.0, "fastest"),
    way(2, "wfbp", 1.5, "slower", batch=256),
    way(2, "gossip", 1.02, "not distinguishable"),
    way(2, "asynchronous", 3.0, "slower", steps=6.0),
    way(2, "downpour", 4.0, "slower", steps=2.0, batch=32),
    way(2, "diloco", np.nan, "not reached"),
])  # fmt: skip
STALLING = pd.DataFrame([
    {**PLACE, "verdict": "stalls", "verdict_ranks": 2},
])  # fmt: skip


def reached(times: pd.DataFrame) -> Target:
    (found,) = targets(StudyTables({"target_times": times, "target_stalling": STALLING}))
    return found


def test_what_is_not_distinguishable_from_the_fastest_leads_with_it_and_others_say_why_they_are_slower() -> None:
    found = reached(TIMES)
    assert summary(found) == (
        "reached equally soon by wfbp and gossip at n = 2, as far as these runs tell "
        "(wfbp in 1 s with sgd, B = 64); reaching it stops getting faster at n = 2"
    )
    one, two = lines(found)
    assert one == "n = 1: wfbp, sgd, B = 64 (2 s)"
    assert two == (
        "n = 2: wfbp, sgd, B = 64 (1 s); not distinguishable: gossip; asynchronous × 3 (steps × 6, each × 0.5); "
        "downpour, sgd, B = 32, × 4 (steps × 2, each × 2)"
    )


def test_the_half_that_loses_more_is_named() -> None:
    times = pd.DataFrame([
        way(1, "wfbp", 2.0, "fastest"), way(4, "wfbp", 1.0, "fastest", steps=0.4, batch=256),
    ])  # fmt: skip
    # 1.6 times the samples, and 4 workers need half of the seconds: a worker's rate is 0.8 of what it was.
    words = "from 1 to 4 each doubling needs 26 % more samples and loses 11 % of its rate; samples lose more"
    assert list(larger_half_in_words(reached(times))) == [f"wfbp: {words}"]


def test_the_fastest_of_all_is_soonest_where_all_others_are_slower() -> None:
    assert summary(reached(TIMES[TIMES["sync"] != "gossip"])) == (
        "reached soonest by wfbp, sgd, B = 64 (1 s) at n = 2; reaching it stops getting faster at n = 2"
    )


def test_another_mini_batch_of_the_same_preset_may_be_as_soon_and_each_other_preset_is_named_once() -> None:
    times = TIMES.assign(verdict=TIMES["verdict"].mask(TIMES["batch"] == 256, "not distinguishable"))
    more = pd.DataFrame([way(2, "gossip", 1.1, "not distinguishable", batch=256)])
    words = summary(reached(pd.concat([times, more], ignore_index=True)))
    assert "equally soon by wfbp, gossip and sgd, B = 256 at n = 2" in words


def test_one_worker_count_says_nothing_of_more() -> None:
    assert "reaching it" not in summary(reached(TIMES[TIMES["ranks"] == 2]))


def test_what_was_trained_in_one_way_alone_is_not_called_soonest_and_said_once() -> None:
    found = reached(TIMES[TIMES["ranks"] == 1])
    assert (summary(found), list(lines(found))) == ("reached by wfbp, sgd, B = 64 (2 s) at n = 1", [])


def test_a_target_that_nothing_reached_is_not_said() -> None:
    times = TIMES[TIMES["sync"] == "diloco"]
    assert section(StudyTables({"target_times": times, "target_stalling": STALLING})).findings == ()
