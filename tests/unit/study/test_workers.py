"""Which places make scaling curves: a node is filled before another is taken."""

from hypothesis import given
from hypothesis import strategies as st

from stallpoint.study.workers import counts, curves_of, nearest, placement_at, placement_in_words

PLACES = st.sets(st.tuples(st.integers(1, 16), st.integers(1, 8)), min_size=1, max_size=12)


@given(st.sets(st.integers(1, 64), min_size=1))
def test_with_one_worker_on_each_node_there_is_one_curve_over_the_nodes(nodes: set[int]) -> None:
    places = sorted((n, 1) for n in nodes)
    assert curves_of(places) == {1: places}
    assert counts(nodes, 1) == sorted(nodes)


@given(PLACES)
def test_every_place_is_on_a_curve_and_every_curve_rises(places: set[tuple[int, int]]) -> None:
    curves = curves_of(places)
    assert {place for curve in curves.values() for place in curve} == places
    for per_node, curve in curves.items():
        ranks = [nodes * workers for nodes, workers in curve]
        assert ranks == sorted(set(ranks))
        assert [placement_at(count, per_node) for count in ranks] == curve


def test_a_curve_fills_a_node_before_it_takes_another() -> None:
    assert curves_of([(1, 1), (1, 2), (1, 4), (2, 4), (4, 4), (2, 1)]) == {
        1: [(1, 1), (2, 1)],
        4: [(1, 1), (1, 2), (1, 4), (2, 4), (4, 4)],
    }
    assert curves_of([(1, 1), (1, 2), (1, 4)]) == {4: [(1, 1), (1, 2), (1, 4)]}


@given(st.sets(st.integers(1, 16), min_size=1), st.integers(1, 8))
def test_counts_are_full_nodes_and_powers_of_two_inside_one(nodes: set[int], per_node: int) -> None:
    found = counts(nodes, per_node)
    assert {n * per_node for n in nodes} <= set(found)
    inside = [count for count in found if count < per_node]
    assert all(count & (count - 1) == 0 for count in inside)
    assert per_node == 1 or per_node in found


def test_workers_of_a_node_count_before_nodes() -> None:
    assert nearest([(2, 1), (1, 4)], (2, 4)) == (1, 4)
    assert nearest([(2, 4), (8, 4), (2, 1)], (16, 4)) == (8, 4)


def test_places_are_nodes_where_each_has_one_worker_and_else_workers() -> None:
    assert placement_in_words(4, 1) == "4 nodes"
    assert placement_in_words(1, 4) == "1 worker (1 node)"
    assert placement_in_words(16, 4) == "16 workers (4 nodes)"
