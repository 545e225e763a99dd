from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.measure import constants
from stallpoint.measure.synchronisation.assembly import calibrated
from stallpoint.strategies.mg_wfbp import last_message_end, merged_groups

LAYERS = st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 50)), min_size=1, max_size=8)


def plans(layers: int) -> list[list[list[int]]]:
    """Every way to cut the layers into groups."""
    return [
        [list(range(begin, stop)) for begin, stop in zip((0, *cuts), (*cuts, layers), strict=True)]
        for count in range(layers)
        for cuts in combinations(range(1, layers), count)
    ]


@given(LAYERS, st.integers(0, 100), st.sampled_from([0.0, 0.01, 0.1, 1.0]))
def test_no_plan_ends_earlier_under_the_model(layers: list[tuple[int, int]], alpha: int, beta: float) -> None:
    sizes = [float(size) for size, _ in layers]
    ready = [float(sum(step for _, step in layers[: n + 1])) for n in range(len(layers))]
    plan = merged_groups(sizes, ready, alpha, beta)
    assert [layer for group in plan for layer in group] == list(range(len(layers)))
    least = min(last_message_end(other, sizes, ready, alpha, beta) for other in plans(len(layers)))
    assert last_message_end(plan, sizes, ready, alpha, beta) <= least * (1 + 1e-12)


def test_latency_merges_and_waiting_does_not() -> None:
    # The first three layers end 11 before the last one, which decides: one message of them, as it takes fewest.
    assert merged_groups([1.0] * 4, [1.0, 2.0, 3.0, 14.0], alpha=2.0, beta=0.0) == [[0, 1, 2, 3]]
    assert merged_groups([1.0] * 4, [1.0, 2.0, 3.0, 14.0], alpha=2.0, beta=1.0) == [[0, 1, 2], [3]]
    assert merged_groups([1.0] * 4, [0.0] * 4, alpha=2.0, beta=0.0) == [[0, 1, 2, 3]]
    assert merged_groups([10.0, 10.0, 10.0], [0.0, 10.0, 20.0], alpha=0.0, beta=1.0) == [[0], [1], [2]]


def test_a_message_waits_for_the_one_before_and_for_its_last_layer() -> None:
    assert last_message_end([[0], [1, 2]], [10.0, 20.0, 30.0], [1.0, 2.0, 100.0], alpha=5.0, beta=1.0) == 155.0
    assert last_message_end([[0], [1]], [10.0, 20.0], [1.0, 2.0], alpha=5.0, beta=1.0) == 41.0


NETWORK_BYTES = 4 * 61_000_000


@pytest.mark.parametrize("alpha", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("beta", [3e-12, 1e-10, 1e-6])
def test_latency_and_bandwidth_of_any_link_are_found(alpha: float, beta: float) -> None:
    asked = []

    def seconds(size: int) -> float:
        asked.append(size)
        return alpha + beta * size

    assert calibrated(seconds, NETWORK_BYTES) == pytest.approx((alpha, beta))
    assert asked[0] == constants.LATENCY_BYTES
    assert asked[-1] == NETWORK_BYTES or seconds(asked[-1] // 4) < constants.LATENCIES * seconds(asked[0])


def test_no_message_is_larger_than_the_network() -> None:
    asked = []
    assert calibrated(lambda size: asked.append(size) or 1.0, 1000) == (1.0, 0.0)
    assert asked == [1000]
