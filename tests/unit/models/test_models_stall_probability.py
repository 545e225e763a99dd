"""P(stall = n) from draws of gains, and from noisy curves whose stalling point was planted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.models.answers.stalling import deciding_visits
from stallpoint.models.base.measured import Measured, Parts, Point
from stallpoint.models.base.stall import Stall
from stallpoint.models.base.statistics import REPLICATES
from stallpoint.models.iteration.curve import ScalingCurve
from stallpoint.models.scaling.study_curves import underlying

SIX, NINE = tuple(2**power for power in range(6)), tuple(2**power for power in range(9))
draws = st.lists(st.lists(st.floats(-0.5, 0.7), min_size=20, max_size=20), min_size=1, max_size=5)


def gains(*shares: float) -> dict[int, np.ndarray]:
    """Draws of gains of which so many do not pay, the first ones, from one node on."""
    places = np.arange(100) / 100
    return {2**power: np.where(places < share, 0.0, np.log(1.5)) for power, share in enumerate(shares)}


@pytest.mark.parametrize(
    ("shares", "nodes", "likely", "verdict", "deciding"),
    [
        ((0.0, 0.0, 0.02), 8, [8], ("scales", 8), []),
        ((0.02, 0.97, 0.98), 2, [2], ("stalls", 2), []),
        ((1.0, 0.0), 1, [1], ("stalls", 1), []),
        ((0.0, 0.6, 1.0), 2, [2, 4], ("undecided", 2), [2, 4]),
        ((0.0, 0.2, 0.2), 8, [2, 8], ("undecided", 2), [2, 4]),
        ((0.3, 0.6, 0.9), 2, [1, 2, 4], ("undecided", 1), [1, 2, 4]),
        ((0.3, 0.6, 0.8), 2, [1, 2, 4, 8], ("undecided", 1), [1, 2, 4, 8]),
    ],
)
def test_what_follows_from_probabilities(
    shares: tuple[float, ...], nodes: int, likely: list[int], verdict: tuple[str, int], deciding: list[int]
) -> None:
    found = Stall.of(gains(*shares), 2 ** len(shares), 0.1)
    assert (found.ranks, found.likely, found.verdict, found.deciding) == (nodes, likely, verdict, deciding)


def test_nothing_is_decided_without_a_doubling() -> None:
    found = Stall.of({}, 4, 0.1)
    assert (found.ranks, found.reached, found.verdict, found.deciding) == (4, False, ("undecided", 0), [])


@pytest.mark.parametrize("beyond", [0.02, -0.03, 0.1])
def test_as_many_visits_as_are_said_decide_if_the_gain_stays(beyond: float) -> None:
    mean, scatter = np.log(1.1) + beyond, 0.05 * np.random.default_rng(0).standard_normal(100_000)
    factor = deciding_visits(mean + scatter, 0.1)
    assert factor >= 1
    pays = float((mean + scatter / np.sqrt(factor) >= np.log(1.1)).mean())
    assert max(pays, 1 - pays) == (pytest.approx(0.9, abs=0.01) if factor > 1 else pytest.approx(0.977, abs=0.01))


@given(draws, st.floats(0.01, 0.9), st.floats(0.01, 0.9))
def test_asking_for_more_never_makes_a_later_stall_more_probable(
    found: list[list[float]], one: float, other: float
) -> None:
    gained = {2**power: np.array(values) for power, values in enumerate(found)}
    less, more = (Stall.of(gained, 2 ** len(found), threshold) for threshold in sorted((one, other)))
    cumulated = [np.cumsum(list(stall.probabilities.values())) for stall in (less, more)]
    assert (cumulated[1] >= cumulated[0] - 1e-12).all()
    assert cumulated[0][-1] == pytest.approx(1)
    for stall in (less, more):
        inside = [stall.probabilities[n] for n in stall.likely]
        assert sum(inside) >= 0.9 - 1e-9
        assert sum(inside) - min(inside) < 0.9
        assert stall.ranks in range(min(stall.likely), max(stall.likely) + 1)


# --- planted truths -------------------------------------------------------------------------------


def amdahl(stall: float) -> Callable[[int], float]:
    """Doubling gains 13.6 % at half of `stall` and 7.3 % at `stall`."""
    return lambda n: 6.37 / stall + 1 / n


def jump(n: int) -> float:
    """A slow link from more than four nodes on: gains of 98, 96, 2, 33 and 19 %."""
    return 1 / n + 0.01 + 0.12 * (n > 4)


def hump(n: int) -> float:
    """Two nodes gain 3 %, all further doublings more than 40 %: no law falls and rises so."""
    return {1: 1.0, 2: 0.97, 4: 0.5, 8: 0.28, 16: 0.16, 32: 0.1}[n]


def planted(
    truth: Callable[[int], float], nodes: tuple[int, ...], noise: float, seed: int, stated: float | None = None
) -> Stall:
    """What is found of a curve with `noise` (relative), of which ensembles say `stated`."""
    random = np.random.default_rng(seed)
    measured = {}
    for n in nodes:
        seconds = truth(n) * np.exp(noise * random.standard_normal())
        spread = np.exp((stated or noise) * np.concatenate([[0.0], random.standard_normal(REPLICATES)]))
        whole = nodes[-1]
        point = Point("made-up", "cpu", "local", "strong", "wfbp", 0, whole, 1, n, n, whole, whole // n)
        measured[n] = Measured(point, (), Parts(iteration_time=seconds * spread))
    rates = underlying(ScalingCurve(measured, {next(iter(nodes)): measured[nodes[0]]}))  # type: ignore[dict-item]
    return Stall.of({n: rates[2 * n] - rates[n] for n in nodes[:-1]}, nodes[-1], 0.1)


def test_a_whole_curve_tells_what_no_doubling_tells_alone() -> None:
    # 1.5 % of noise in each time is 2.1 % in each gain, of which 13.6 and 7.3 % lie 3.6 and 2.7 % from the threshold.
    found = [planted(amdahl(8), SIX, 0.015, seed) for seed in range(10)]
    assert {stall.verdict for stall in found} <= {("stalls", 8), ("undecided", 4), ("undecided", 8)}
    assert sum(stall.verdict == ("stalls", 8) for stall in found) >= 6


def test_one_visit_of_noisy_jobs_neither_hides_a_stall_nor_decides() -> None:
    # What one visit cannot know is taken for 6 %, and is 10 %.
    found = [planted(amdahl(128), NINE, 0.1, seed, stated=0.065) for seed in range(8)]
    assert np.median([stall.ranks for stall in found]) == 128
    assert sum(128 in stall.likely for stall in found) >= 7
    assert all(stall.verdict in (("stalls", 128), ("undecided", stall.likely[0])) for stall in found)


def test_a_curve_that_scales_is_said_to() -> None:
    assert planted(amdahl(1000), SIX, 0.1, 0).verdict == ("scales", 32)


@pytest.mark.parametrize(("truth", "stall"), [(jump, 4), (hump, 1)])
def test_a_curve_of_no_law_is_followed_where_it_is_known_and_not_judged_where_not(
    truth: Callable[[int], float], stall: int
) -> None:
    assert planted(truth, SIX, 0.003, 0).verdict == ("stalls", stall)
    for seed in range(5):
        said, nodes = planted(truth, SIX, 0.03, seed).verdict
        assert (said, nodes) == ("stalls", stall) or said == "undecided"
