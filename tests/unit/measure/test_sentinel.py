"""The work that is always the same: how often it is done is agreed once, and its time is all that differs."""

import json
import subprocess
import sys

import pytest
import torch
from launching import ENVIRONMENT, MPIRUN

from stallpoint.measure import constants, sentinel
from stallpoint.measure.caches import Caches
from stallpoint.measure.sentinel import Sentinel
from stallpoint.measure.world import World

pytestmark = pytest.mark.ranks

PROGRAM = """
import json
import torch
from stallpoint.measure.sentinel import Sentinel
from stallpoint.measure.world import World
torch.set_num_threads(1)
world, cpu, told = World.start(3), torch.device("cpu"), []
for part in (world, world.part([0, 1], world.reduction)):
    if part:
        sentinel = Sentinel(part, cpu)
        told.append((sentinel.products, sentinel.all_reduces, sentinel.run()))
print(json.dumps([world.rank, told]), flush=True)
"""


@pytest.mark.parametrize(("cache", "side"), [(None, 96), (256, 96), (512, 128), (1024, 192), (2048, 288), (1, 32)])
def test_the_sentinels_matrices_fill_half_of_a_cores_own_cache(cache: int | None, side: int) -> None:
    known = Caches(cache and cache * 2**10, None)
    assert sentinel.side_of("cpu", known) == side
    assert side == constants.SENTINEL_STEP or 3 * 4 * side**2 <= known.kept_by_core / 2
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


def test_ranks_do_the_same_in_all_worlds() -> None:
    command = [*MPIRUN, "-n", "3", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=True)
    told = [worlds for _, worlds in sorted(map(json.loads, done.stdout.splitlines()))]
    assert [len(worlds) for worlds in told] == [2, 2, 1]
    assert len({products for worlds in told for products, _, _ in worlds}) == 1
    for place in (0, 1):
        assert len({worlds[place][1] for worlds in told if place < len(worlds)}) == 1
    assert all(seconds[name] > 0 for worlds in told for *_, seconds in worlds for name in seconds)
