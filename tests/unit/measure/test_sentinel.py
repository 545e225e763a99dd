"""The work that is always the same: how often it is done is agreed once, and its time is all that differs."""

import pytest
import torch
from resident_ranks import Ranks

from stallpoint.measure import constants
from stallpoint.measure.machine import sentinel
from stallpoint.measure.machine.caches import Caches
from stallpoint.measure.machine.sentinel import Sentinel
from stallpoint.measure.world import World

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize(("cache", "side"), [(None, 96), (256, 96), (512, 128), (1024, 192), (2048, 288), (1, 32)])
def test_the_sentinels_matrices_fill_half_of_a_cores_own_cache(cache: int | None, side: int) -> None:
    known = Caches(cache and cache * 2**10, None)
    assert sentinel.side_of("cpu", known) == side
    assert side == constants.SENTINEL_STEP or 3 * 4 * side**2 <= known.core_bytes / 2
    assert sentinel.side_of("cuda", known) == 2048


def test_one_rank_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinel, "_products", {})
    world, cpu = World.start(1), torch.device("cpu")
    first = Sentinel(world, cpu)
    seconds = first.run()
    assert seconds["all_reduce_seconds"] is None
    assert seconds["product_seconds"] > 0
    assert first.products >= 1
    assert Sentinel(world, cpu).products == first.products


def sentinels(world: World) -> list[tuple[int, int, dict[str, float | None]]]:
    """Products, all-reduces and times in all worlds of this rank."""
    parts = (world, world.part([0, 1], world.reduction))
    made = [Sentinel(part, torch.device("cpu")) for part in parts if part]
    return [(one.products, one.all_reduces, one.run()) for one in made]


def test_ranks_do_the_same_in_all_worlds(ranks: Ranks) -> None:
    told = ranks(sentinels, count=3)
    assert [len(worlds) for worlds in told] == [2, 2, 1]
    assert len({products for worlds in told for products, _, _ in worlds}) == 1
    for place in (0, 1):
        assert len({worlds[place][1] for worlds in told if place < len(worlds)}) == 1
    assert all(seconds[name] for worlds in told for *_, seconds in worlds for name in seconds)
