"""What a stall is, its probabilities, and noisy curves whose stalling point was planted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.base.curve import Curve, rates_from
from stallpoint.base.priors import Noise
from stallpoint.base.stall import Stall, Verdict
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.answers.stalling import deciding_visits

SIX, NINE = tuple(2**power for power in range(6)), tuple(2**power for power in range(9))
STALLS, SCALES, UNDECIDED = Verdict.STALLS, Verdict.SCALES, Verdict.UNDECIDED
counted = st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True)


def exact(rates: Mapping[int, float]) -> Stall:
    """The stall of rates without noise."""
    return Stall.of({n: np.log([rate]) for n, rate in rates.items()}, 0.1)


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({1: 100, 2: 190, 4: 352}, (SCALES, 4)),
        ({1: 100, 2: 105, 4: 108}, (STALLS, 1)),
        # A larger count that gains ends the stall, however bad the first node boundary is.
        ({4: 40, 8: 80, 16: 81, 32: 160, 64: 318}, (SCALES, 64)),
        ({1: 100, 2: 95, 4: 180, 8: 350}, (SCALES, 8)),
        # 150 on 8 is 14 % for each of three doublings; from 2 on each gains 12 %.
        ({1: 100, 2: 120, 8: 150}, (SCALES, 8)),
        ({1: 100, 2: 130, 8: 150}, (STALLS, 2)),
        # Counts need no double.
        ({1: 100, 3: 290, 7: 300, 12: 310}, (STALLS, 3)),
        # Exactly the threshold pays.
        ({1: 100, 2: 110, 4: 121}, (SCALES, 4)),
    ],
)
def test_a_stall_is_the_smallest_count_after_which_no_larger_one_gains(
    rates: dict[int, float], said: tuple[Verdict, int]
) -> None:
    assert exact(rates).verdict == said


@given(counted, st.data())
def test_probabilities_are_shares_of_draws(counts: list[int], data: st.DataObject) -> None:
    drawn = {n: np.array(data.draw(st.lists(st.floats(-1, 3), min_size=8, max_size=8))) for n in counts}

    def stall(draw: int) -> int:
        for n in sorted(counts):
            larger = [m for m in counts if m > n]
            gains = [(drawn[m][draw] - drawn[n][draw]) / np.log2(m / n) for m in larger]
            if not any(gain >= np.log(1.1) for gain in gains):
                return n
        raise AssertionError

    found = Stall.of(drawn, 0.1).probabilities
    assert found == {n: sum(stall(draw) == n for draw in range(8)) / 8 for n in sorted(counts)}


def stalling(**shares: float) -> Stall:
    """A stall of these probabilities, by count: ``n4=0.5``."""
    return Stall({int(name[1:]): share for name, share in shares.items()})


@pytest.mark.parametrize(
    ("stall", "nodes", "likely", "verdict", "deciding"),
    [
        (stalling(n1=0.0, n2=0.0, n4=0.02, n8=0.98), 8, [8], (SCALES, 8), []),
        (stalling(n1=0.02, n2=0.95, n4=0.03), 2, [2], (STALLS, 2), []),
        (stalling(n1=0.0, n2=0.6, n4=0.4), 2, [2, 4], (UNDECIDED, 2), [2, 4]),
        (stalling(n1=0.0, n2=0.2, n4=0.0, n8=0.8), 8, [2, 8], (UNDECIDED, 2), [2, 4]),
        (stalling(n1=0.3, n3=0.3, n4=0.3, n8=0.1), 3, [1, 3, 4], (UNDECIDED, 1), [1, 3, 4]),
        (stalling(n1=0.5, n2=0.5), 1, [1, 2], (UNDECIDED, 1), [1, 2]),
    ],
)
def test_what_follows_from_probabilities(
    stall: Stall, nodes: int, likely: list[int], verdict: tuple[str, int], deciding: list[int]
) -> None:
    assert (stall.ranks, stall.likely, stall.verdict, stall.crucial_counts) == (nodes, likely, verdict, deciding)
    assert list(stall.columns.values()) == [nodes, likely[0], likely[-1]]


@pytest.mark.parametrize("rates", [{}, {4: 100.0}])
def test_nothing_is_decided_by_one_count(rates: dict[int, float]) -> None:
    found = exact(rates)
    assert (found.ranks, found.reached, found.verdict, found.crucial_counts) == (
        max(rates, default=0), False, (UNDECIDED, 0), [],
    )  # fmt: skip


@pytest.mark.parametrize("beyond", [0.02, -0.03, 0.1])
def test_as_many_visits_as_are_said_decide_if_the_gain_stays(beyond: float) -> None:
    mean, scatter = np.log(1.1) + beyond, 0.05 * np.random.default_rng(0).standard_normal(100_000)
    factor = deciding_visits(mean + scatter, 0.1)
    assert factor >= 1
    pays = float((mean + scatter / np.sqrt(factor) >= np.log(1.1)).mean())
    assert max(pays, 1 - pays) == (pytest.approx(0.9, abs=0.01) if factor > 1 else pytest.approx(0.977, abs=0.01))


@given(counted, st.floats(0.01, 0.9), st.floats(0.01, 0.9), st.integers(0, 2**32 - 1))
def test_asking_for_more_never_makes_a_later_stall_more_probable(
    counts: list[int], one: float, other: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    rates = {n: 0.5 * np.log(n) + 0.2 * random.standard_normal(20) for n in counts}
    less, more = (Stall.of(rates, threshold) for threshold in sorted((one, other)))
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
    """A slow link from more than four nodes on: gains of 98, 96, 2, 33 and 19 %, so that further nodes pay."""
    return 1 / n + 0.01 + 0.12 * (n > 4)


def hump(n: int) -> float:
    """Two nodes gain 3 %, all further doublings more than 40 %: no law falls and rises so."""
    return {1: 1.0, 2: 0.97, 4: 0.5, 8: 0.28, 16: 0.16, 32: 0.1}[n]


def planted(
    truth: Callable[[int], float], nodes: tuple[int, ...], noise: float, seed: int, stated: float | None = None
) -> Stall:
    """What is found of a curve with `noise` (relative), of which ensembles say `stated`."""
    random = np.random.default_rng(seed)
    rates = {}
    for n in nodes:
        spread = np.exp((stated or noise) * np.concatenate([[0.0], random.standard_normal(REPLICATES)]))
        rates[n] = spread / truth(n) * np.exp(noise * random.standard_normal())
    return Curve(rates).stall


def test_a_stall_is_decided_where_noise_is_smaller_than_what_gains_lack() -> None:
    # 0.7 % of noise in each time is 1 % in each gain, of which 13.6 and 7.3 % lie 3.6 and 2.7 % from the threshold.
    found = [planted(amdahl(8), SIX, 0.007, seed) for seed in range(10)]
    assert {stall.verdict for stall in found} <= {("stalls", 8), ("undecided", 4), ("undecided", 8)}
    assert sum(stall.verdict == ("stalls", 8) for stall in found) >= 6


def test_one_visit_of_noisy_jobs_neither_hides_a_stall_nor_decides() -> None:
    # What one visit cannot know is taken for 6 %, and is 10 %.
    found = [planted(amdahl(128), NINE, 0.1, seed, stated=0.065) for seed in range(8)]
    assert np.median([stall.ranks for stall in found]) == 128
    assert sum(128 in stall.likely for stall in found) >= 6
    assert all(stall.verdict in (("stalls", 128), ("undecided", stall.likely[0])) for stall in found)


def test_a_curve_that_scales_is_said_to() -> None:
    assert planted(amdahl(1000), SIX, 0.1, 0).verdict == ("scales", 32)


@pytest.mark.parametrize(("truth", "shorter", "stall"), [(jump, 4, 4), (hump, 2, 1)])
def test_a_step_is_a_stall_until_a_larger_count_is_measured_that_gains(
    truth: Callable[[int], float], shorter: int, stall: int
) -> None:
    assert planted(truth, SIX[:shorter], 0.003, 0).verdict == ("stalls", stall)
    assert planted(truth, SIX, 0.003, 0).verdict == ("scales", 32)
    for seed in range(5):
        assert planted(truth, SIX, 0.03, seed).verdict[0] in ("scales", "undecided")


# --- curves of runs ---------------------------------------------------------------------------------


def curve(rates: Mapping[int, float], per_node: float | None = None, noise: float = 0.001) -> Curve:
    return Curve(rates_from({n: [rate] for n, rate in rates.items()}, Noise(noise, 4.0, "")), per_node)


STEP = {1: 100, 2: 190, 3: 272, 4: 352, 8: 252}


@pytest.mark.parametrize(
    ("rates", "per_node", "said"),
    [
        (STEP, 4, (UNDECIDED, 4)),
        (STEP, None, (UNDECIDED, 4)),
        (STEP | {16: 418, 32: 757}, 4, (SCALES, 32)),
        (STEP | {16: 260}, 4, (STALLS, 4)),
        # Inside the node it stalls before.
        ({1: 100, 2: 190, 4: 192, 8: 194}, 4, (STALLS, 2)),
        # The count beyond is not the first beyond a node.
        (STEP, 2, (STALLS, 4)),
        ({1: 100, 2: 190, 3: 272, 6: 252}, None, (STALLS, 3)),
        # Each worker is a node.
        ({1: 100, 2: 101}, 1, (STALLS, 1)),
    ],
)
def test_one_count_beyond_a_node_does_not_make_a_stall(
    rates: dict[int, float], per_node: float | None, said: tuple[Verdict, int]
) -> None:
    assert curve(rates, per_node).verdict == said


def test_a_dip_is_slower_than_an_earlier_count_that_a_larger_one_exceeds() -> None:
    assert curve({4: 1637, 8: 1217, 16: 2396}).dips == [(8, 4, 16)]
    assert curve({1: 100, 2: 95, 4: 180, 8: 350}).dips == [(2, 1, 4)]
    assert curve({1: 100, 2: 95, 4: 98, 8: 97}).dips == []
    assert curve({1: 100, 2: 95, 4: 180}, noise=0.05).dips == []
    # As fast is neither slower nor faster.
    assert curve({1: 100, 2: 95, 4: 100}).dips == []
    assert curve({1: 100, 2: 100, 4: 200}, noise=0.0).dips == []
    # 19 of 20 draws are slower.
    draws = {n: rate * np.append(np.ones(20), 1.1 if n == 2 else 1.0) for n, rate in {1: 100, 2: 95, 4: 180}.items()}
    assert Curve(draws).dips == [(2, 1, 4)]
    assert Curve({n: draws[n] for n in (1, 2)}).slower_largest_count == 2


def test_single_runs_are_sure_beyond_the_prior_alone() -> None:
    posted = {n: [rate] for n, rate in {1: 100.0, 2: 120.0, 4: 144.0}.items()}
    assert Curve(rates_from(posted)).is_sure
    assert not Curve(rates_from(posted, Noise(0.05, 4.0, ""))).is_sure
    flat = {n: [rate] for n, rate in {1: 100.0, 2: 109.0, 4: 118.0, 8: 129.0}.items()}
    assert Curve(rates_from(flat)).verdict[0] == UNDECIDED


def test_a_stall_is_sure_where_it_shows_at_more_than_one_count() -> None:
    assert not curve({1: 100, 2: 190, 4: 195}).is_sure
    assert curve({1: 100, 2: 190, 4: 195, 8: 196}).is_sure
    assert curve({1: 100}, per_node=1).full_node_workers == 1


def test_the_odd_one_of_a_steep_pair_is_the_one_farther_from_its_neighbours() -> None:
    assert curve({1: 100, 2: 120, 4: 380, 8: 760}).odd_count == 2
    assert curve({1: 100, 2: 190, 4: 600, 8: 720}).odd_count == 4
    assert curve({1: 100, 2: 300}).odd_count == 2
    assert curve({1: 100, 2: 210, 4: 420}).odd_count is None


def test_repeats_give_the_noise() -> None:
    near = rates_from({1: [100, 100.2, 99.8], 2: [190, 190.4, 189.6]})
    far = rates_from({1: [100, 110, 90], 2: [190, 209, 171]})
    for rates, low, high in ((near, 0.005, 0.015), (far, 0.06, 0.12)):
        assert rates[2][0] == 190
        assert low < np.log(rates[2][1:] / 190).std() < high


def test_nothing_is_sure_and_wrong_of_single_runs_that_scatter_more_than_is_taken() -> None:
    """Flat curves of four counts, each run once, 5 and 10 % apart where 2 % are taken."""
    sure = []
    for noise, seed in product((0.05, 0.1), range(50)):
        random = np.random.default_rng([7, seed])
        runs = {n: [100 * float(np.exp(noise * random.standard_normal()))] for n in (1, 2, 4, 8)}
        found = Curve(rates_from(runs), repeated=False)
        sure += [found.verdict] if found.is_sure else []
    assert set(sure) <= {(Verdict.STALLS, 1)}
    assert Curve(rates_from({n: [100.0 * n] for n in (1, 2, 4)}), repeated=False).is_sure
