"""Which cell is visited next: properties that hold whatever visits find."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from visiting_cells import collectives, sgemm, train

from stallpoint.schedule.agenda import Limits
from stallpoint.schedule.next_visit import MAX_FACTOR, VisitedCell, choose, half_width, speedups
from stallpoint.schedule.session import _half_widths_in_words as words_of_widths
from stallpoint.schedule.session import speedups_so_far
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.train_kind import TrainCell

Find = Callable[[VisitedCell], tuple[float, float]]
"""Median iteration time and duration that a visit finds."""


def simulate(
    cells: Sequence[Cell], find: Find, limits: Limits, seed: int = 1, failing: Sequence[int] = ()
) -> tuple[list[VisitedCell], list[int], str]:
    """Visit as chosen until it is enough: what was found, places in their order, and why it ended."""
    visited, order = [VisitedCell(cell) for cell in cells], []
    while (choice := choose(visited, limits, seed)).index is not None:
        again = choose(visited, limits, seed)
        assert again == choice, "the same visits give the same choice"
        one = visited[choice.index]
        median, duration = find(one)
        one.durations.append(duration)
        order.append(choice.index)
        if choice.index in failing:
            one.ended = True
        elif isinstance(one.cell, TrainCell):
            one.medians.append(math.log(median))
        assert len(order) < 1000
    return visited, order, choice.reason


def steady(one: VisitedCell) -> tuple[float, float]:
    return 1.0 / one.cell.nodes, 1.0


CELLS = [train(1, visits=4), train(2, visits=4), train(4, visits=4), sgemm(visits=4), collectives(visits=4)]
numbers = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@given(numbers, st.integers(0, 5))
def test_without_a_precision_every_cell_gets_its_visits_in_rounds(visits: list[int], seed: int) -> None:
    cells = [sgemm(f"network{place}", visits=count) for place, count in enumerate(visits)]
    visited, order, reason = simulate(cells, steady, Limits(), seed)
    assert [one.visits for one in visited] == visits
    assert reason == "visits"
    for end in range(len(order) + 1):
        done = [order[:end].count(place) for place in range(len(cells))]
        unfinished = [count for count, wanted in zip(done, visits, strict=True) if count < wanted]
        assert not unfinished or max(done) <= min(unfinished) + 1, "rounds stay within one visit of each other"


@given(st.integers(0, 100))
def test_rounds_differ_in_their_order_and_studies_in_their_rounds(seed: int) -> None:
    cells = [sgemm(f"network{place}", visits=4) for place in range(8)]
    _, order, _ = simulate(cells, steady, Limits(), seed)
    _, other, _ = simulate(cells, steady, Limits(), seed + 1)
    rounds = [tuple(order[begin : begin + 8]) for begin in range(0, 32, 8)]
    assert len(set(rounds)) > 1
    assert order != other


@given(st.integers(0, 30))
def test_the_speedup_that_is_least_certain_gets_the_further_visits(seed: int) -> None:
    noise = random.Random(seed)
    cells = [train(nodes, visits=4, network=network) for network in ("quiet", "noisy", "fixed") for nodes in (1, 2)]
    cells = [replace(cell, visits=2, visits_fixed=True) if cell.network == "fixed" else cell for cell in cells]

    def find(one: VisitedCell) -> tuple[float, float]:
        spread = 0.001 if isinstance(one.cell, TrainCell) and one.cell.network == "quiet" else 0.3
        return math.exp(noise.gauss(0, spread)), 1.0

    visited, _, reason = simulate(cells, find, Limits(precision=0.05), seed)
    quiet, noisy, fixed = visited[:2], visited[2:4], visited[4:]
    assert [one.visits for one in quiet] == [4, 4]
    assert [one.visits for one in fixed] == [2, 2]
    assert reason in ("precision", "max visits")
    worst = max(one.half_width for one in speedups(noisy))
    assert worst <= 0.05 or all(one.visits == MAX_FACTOR * 4 for one in noisy)
    assert sum(one.visits for one in noisy) > 8 or worst <= 0.05


@pytest.mark.parametrize(("gain", "more"), [(1.5, False), (1.11, True)])
@pytest.mark.parametrize("minutes", [None, 0.4])
def test_what_is_left_of_a_budget_goes_to_gains_that_are_open(gain: float, more: bool, minutes: float | None) -> None:
    noise = random.Random(3)

    def find(one: VisitedCell) -> tuple[float, float]:
        return math.exp(noise.gauss(0, 0.02)) / gain ** (one.cell.nodes - 1), 1.0

    limits = Limits(precision=0.05, minutes=minutes, threshold=0.1)
    _, order, reason = simulate([train(1, visits=5), train(2, visits=5)], find, limits)
    assert reason == "precision"
    assert (len(order) > 14) == (more and minutes is not None)
    assert len(order) <= 24


def test_of_two_cells_that_are_as_uncertain_the_cheaper_one_is_visited() -> None:
    one, two = VisitedCell(train(1, visits=2)), VisitedCell(train(2, visits=2))
    for visited, seconds in ((one, 10.0), (two, 1.0)):
        visited.medians, visited.durations = [0.0, 0.2], [seconds] * 2
    assert choose([one, two], Limits(precision=0.01), 1).index == 1


@given(numbers, st.floats(0.0, 0.2), st.booleans(), st.integers(0, 5))
def test_a_budget_ends_it_only_when_every_cell_was_seen(
    visits: list[int], minutes: float, of_nodes: bool, seed: int
) -> None:
    cells = [sgemm(f"network{place}", visits=count) for place, count in enumerate(visits)]
    limits = Limits(node_hours=minutes / 60) if of_nodes else Limits(minutes=minutes)
    visited, order, reason = simulate(cells, steady, limits, seed)
    assert all(one.visits for one in visited)
    complete = [one.visits for one in visited] == visits
    assert reason == ("visits" if complete and len(order) < 60 * minutes else "budget") or complete
    assert len(order) <= max(len(cells), 60 * minutes + 1e-9)


@given(st.lists(st.integers(0, 4), max_size=4, unique=True), st.sampled_from([0.0, 0.05]))
def test_what_failed_is_not_visited_again(failing: list[int], precision: float) -> None:
    visited, order, _ = simulate(CELLS, steady, Limits(precision=precision), failing=failing)
    for place, one in enumerate(visited):
        assert order.count(place) == (1 if place in failing else 4)
        assert one.ended == (place in failing)


def test_disturbed_visits_are_made_up_for_but_not_for_ever() -> None:
    one = VisitedCell(train(1, visits=3))
    assert one.wanted == 3
    one.disturbed = 2
    assert one.wanted == 5
    one.disturbed = 50
    assert one.wanted == 6


def test_a_disturbed_visit_is_lost_where_the_number_is_fixed_or_as_many_were_made_again() -> None:
    one, fixed = (VisitedCell(train(1, visits=3), disturbed=1, fixed=fixed) for fixed in (False, True))
    assert (one.repeats_disturbed, fixed.repeats_disturbed) == (True, False)
    one.disturbed = 4
    assert not one.repeats_disturbed


def test_intervals_of_few_visits_are_wide() -> None:
    assert half_width([]) == half_width([1.0]) == math.inf
    assert half_width([1.0, 1.0]) == 0
    # Student's t of one degree of freedom: 6.31 standard errors.
    assert half_width([0.0, 0.2]) == pytest.approx(6.314 * 0.1, rel=1e-3)
    assert half_width([0.0, 0.2] * 2) < half_width([0.0, 0.2]) / 4


def test_an_interval_that_is_narrow_once_does_not_end_it() -> None:
    """The last visits to both cells agree with the ones before by chance: without either, the speedup is not known."""
    one, two = (VisitedCell(train(nodes, visits=3)) for nodes in (1, 2))
    one.medians, two.medians = [0.0, 0.0, 0.0, 0.0], [0.0, 0.04, 0.02, 0.02]
    one.durations = two.durations = [1.0] * 4
    (speedup,) = speedups([one, two])
    assert speedup.half_width < 0.02 < speedup.steady_half_width
    assert choose([one, two], Limits(precision=0.02), 1).index == 1
    two.medians = [0.0, 0.005, 0.002, 0.002]
    assert choose([one, two], Limits(precision=0.02), 1).reason == "precision"


def test_a_gain_between_neighbours_that_no_machine_can_have_is_visited_as_often_again() -> None:
    cells = [replace(train(nodes, visits=4), batch=4, worker_batch=4 // nodes) for nodes in (1, 2, 4)]

    def find(one: VisitedCell) -> tuple[float, float]:
        return {1: 1.0, 2: 0.9, 4: 0.25}[one.cell.nodes], 1.0

    visited, _, _ = simulate(cells, find, Limits(precision=0.1))
    assert [one.visits for one in visited] == [4, 8, 8]


def test_speedups_are_of_one_curve_against_its_fewest_nodes() -> None:
    cells = [train(4), train(1), train(2), train(2, network="vgg16"), train(1, scaling="compute"), sgemm()]
    found = speedups(map(VisitedCell, cells))
    assert [(one.base.cell.nodes, one.other.cell.nodes) for one in found] == [(1, 2), (1, 4)]
    assert all(one.half_width == math.inf for one in found)


def test_a_speedup_that_no_machine_can_have_is_visited_as_often_again() -> None:
    cells = [train(1, visits=4), train(2, visits=4), train(4, visits=4)]

    def find(one: VisitedCell) -> tuple[float, float]:
        return (0.2 if one.cell.nodes == 2 else 1.0 / one.cell.nodes), 1.0

    visited, _, reason = simulate(cells, find, Limits(precision=0.1))
    assert [one.visits for one in visited] == [8, 8, 4]
    assert reason == "precision"


@pytest.mark.parametrize(("spell", "visits"), [(True, [8, 8, 4]), (False, [4, 4, 4])])
def test_cells_that_do_the_same_but_differ_are_visited_again(spell: bool, visits: list[int]) -> None:
    """A slow spell hits the first visits to one of two presets on one worker; a compute cell of another b is apart."""
    one = train(1, visits=4)
    cells = [one, replace(one, sync="naive"), replace(one, scaling="compute", worker_batch=1)]
    noise = random.Random(3)

    def find(visited: VisitedCell) -> tuple[float, float]:
        slow = spell and visited.cell == cells[1] and visited.visits < 4
        return (1.3 if slow else 1.0) * math.exp(noise.gauss(0, 0.01)), 1.0

    visited, order, reason = simulate(cells, find, Limits(precision=0.5))
    assert [one.visits for one in visited] == visits
    assert {*order[12:14]} <= {0, 1}
    assert all(abs(order[:end].count(0) - order[:end].count(1)) <= 1 for end in range(len(order)))
    assert reason == "precision"


def test_a_speedup_that_is_known_is_said_beside_those_whose_visits_were_few_or_disturbed() -> None:
    def pair(network: str, *medians: float) -> list[VisitedCell]:
        cells = [train(nodes, visits=3, network=network) for nodes in (1, 2)]
        return [VisitedCell(cell, durations=[1.0] * len(medians), medians=list(medians)) for cell in cells]

    often, once = pair("often", 0.0, 0.1, 0.0), pair("once", 0.0)
    known = words_of_widths(often)
    assert known.startswith("speedups to within ")
    assert words_of_widths([*often, *once]) == f"{known}; 1 more without 2 undisturbed visits to each cell"
    disturbed = [replace(one, durations=[1.0] * 9) for one in once]
    assert words_of_widths(disturbed) == "no speedup has 2 undisturbed visits to each of its cells"


def test_what_is_known_so_far_is_the_speedup_on_the_most_workers_of_which_visits_tell() -> None:
    def found(nodes: int, *seconds: float) -> VisitedCell:
        cell = replace(train(nodes), batch=4, worker_batch=4 // nodes)
        return VisitedCell(cell, medians=[math.log(one) for one in seconds])

    one, two, four, once = found(1, 1.0, 1.0), found(2, 0.8, 0.8), found(4, 0.5, 0.5), found(4, 0.5)
    for visited, wanted in (((one, two, four), "2.00"), ((one, two, once), "1.25")):
        (line,) = speedups_so_far(visited)
        assert line.endswith(f": {wanted} times as fast as on 1 node (± 0 %)")
    assert not list(speedups_so_far([found(1, 1.0), found(2, 0.8)]))
