import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.questions.claims.judge import FAILS, HOLDS, UNCLEAR, UNTESTED, claim_verdict, verdict, widen_interval
from stallpoint.questions.claims.language import Condition

NUMBERS = st.floats(min_value=-1e6, max_value=1e6)
ENDS = st.one_of(NUMBERS, st.sampled_from([-math.inf, math.inf]))


@st.composite
def intervals(draw: st.DrawFn, ends: st.SearchStrategy[float] = ENDS) -> tuple[float, float]:
    low, high = sorted([draw(ends), draw(ends)])
    return low, high


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    low, high = draw(st.tuples(ENDS, ENDS).filter(lambda ends: ends[0] != ends[1]).map(sorted))
    return Condition("", low, high, draw(st.booleans()) or math.isinf(low), draw(st.booleans()) or math.isinf(high))


def met(value: float, condition: Condition) -> bool:
    above = value >= condition.low if condition.low_belongs else value > condition.low
    return above and (value <= condition.high if condition.high_belongs else value < condition.high)


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (4.0, 8.0, HOLDS), (5.0, 5.0, HOLDS), (3.9, 5.0, UNCLEAR), (7.0, 8.1, UNCLEAR), (1.0, 20.0, UNCLEAR),
        (1.0, 3.9, FAILS), (8.1, math.inf, FAILS), (4.0, math.inf, UNCLEAR), (math.nan, math.nan, UNCLEAR),
    ],
)  # fmt: skip
def test_between_4_and_8(low: float, high: float, found: str) -> None:
    assert verdict(low, high, Condition("between 4 and 8", 4.0, 8.0)) == found


def test_an_end_belongs_to_at_least_and_not_to_above() -> None:
    assert verdict(1.0, 2.0, Condition("at least 1", low=1.0)) == HOLDS
    assert verdict(1.0, 2.0, Condition("above 1", low=1.0, low_belongs=False)) == UNCLEAR
    assert verdict(0.0, 1.0, Condition("above 1", low=1.0, low_belongs=False)) == FAILS
    assert verdict(0.0, 1.0, Condition("at least 1", low=1.0)) == UNCLEAR
    assert verdict(0.0, 1.0, Condition("at most 1", high=1.0)) == HOLDS
    assert verdict(0.0, 1.0, Condition("below 1", high=1.0, high_belongs=False)) == UNCLEAR


@given(interval=intervals(NUMBERS), condition=conditions(), part=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_a_narrower_interval_never_takes_a_verdict_back(
    interval: tuple[float, float], condition: Condition, part: tuple[float, float]
) -> None:
    low, high = interval
    above, below = sorted(min(max(low + share * (high - low), low), high) for share in part)
    found = verdict(low, high, condition)
    assert found in (UNCLEAR, verdict(above, below, condition))


@given(interval=intervals(), condition=conditions(), share=st.floats(0, 1))
def test_the_verdict_is_true_of_every_value_in_the_interval(
    interval: tuple[float, float], condition: Condition, share: float
) -> None:
    low, high = interval
    found = verdict(low, high, condition)
    values = {low, high}
    if math.isfinite(low) and math.isfinite(high):
        values.add(min(max(low + share * (high - low), low), high))
    for value in values:
        if found == HOLDS:
            assert met(value, condition)
        if found == FAILS:
            assert not met(value, condition)


@given(end=NUMBERS, interval=intervals())
def test_above_holds_where_at_most_does_not_and_the_other_way(end: float, interval: tuple[float, float]) -> None:
    above = verdict(*interval, Condition("", low=end, low_belongs=False))
    at_most = verdict(*interval, Condition("", high=end))
    assert (above, at_most) in [(HOLDS, FAILS), (FAILS, HOLDS), (UNCLEAR, UNCLEAR)]


VERDICTS = st.lists(st.sampled_from([HOLDS, FAILS, UNCLEAR, UNTESTED]))


@given(VERDICTS)
def test_one_that_does_not_hold_refutes_a_claim_about_all(verdicts: list[str]) -> None:
    found = claim_verdict(verdicts, verdicts, "all")
    tested = [one for one in verdicts if one != UNTESTED]
    assert (found == FAILS) == (FAILS in tested)
    assert (found == HOLDS) == (set(tested) == {HOLDS})
    assert (found == UNTESTED) == (not tested)


@given(VERDICTS)
def test_one_that_holds_proves_a_claim_about_any(verdicts: list[str]) -> None:
    found = claim_verdict(verdicts, verdicts, "any")
    tested = [one for one in verdicts if one != UNTESTED]
    assert (found == HOLDS) == (HOLDS in tested)
    assert (found == FAILS) == (set(tested) == {FAILS})


def test_one_of_many_refutes_by_the_wider_interval_alone() -> None:
    assert claim_verdict([HOLDS, HOLDS, FAILS], [HOLDS, HOLDS, UNCLEAR], "all") == UNCLEAR
    assert claim_verdict([FAILS, FAILS, HOLDS], [FAILS, FAILS, UNCLEAR], "any") == UNCLEAR


@pytest.mark.parametrize("count", [1, 2, 20])
def test_the_wider_intervals_hold_all_of_so_many_at_once(count: int) -> None:
    random = np.random.default_rng(3)
    values = random.standard_t(4, (20_000, count))
    low, high = widen_interval(0.0, -2.132, 2.132, count)
    lows, highs = values + low, values + high  # wherever the value is, its ends are as far from it:
    for value in values.ravel()[:100]:
        assert widen_interval(value, value - 2.132, value + 2.132, count) == pytest.approx((value + low, value + high))
    assert (lows > 0).any(axis=1).mean() == pytest.approx(0.05, abs=0.006)
    assert (highs < 0).any(axis=1).mean() == pytest.approx(0.05, abs=0.006)


@given(intervals(), st.integers(2, 50))
def test_unknown_ends_stay_unknown_and_exact_numbers_exact(interval: tuple[float, float], count: int) -> None:
    assert widen_interval(math.nan, *interval, count) == interval
    assert widen_interval(5.0, 5.0, 5.0, count) == (5.0, 5.0)
    assert widen_interval(5.0, -math.inf, 5.0, count)[0] == -math.inf
