"""Iterations of sharded weights against what can be said of them in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.models.taskgraph import MessageTimes, ShardedCosts, runs_of, schedule, sharded_tasks
from stallpoint.strategies.presets import PRESETS, Preset, with_options

FSDP = PRESETS["fsdp"].preset
UPDATE = 0.5


def iteration(preset: Preset, blocks: list[tuple[int, ...]], f: float, b: float, g: float, r: float) -> float:
    """Seconds of an iteration with f, b for each layer's passes, g for a gather, r for a reduce-scatter."""
    layers = 1 + max(map(max, blocks))
    gathers, reduces = ([MessageTimes(members, seconds) for members in blocks] for seconds in (g, r))
    costs = ShardedCosts(0, 0, [f] * layers, [b] * layers, gathers, reduces, UPDATE)
    ends = schedule(sharded_tasks(costs, preset, prefetch=True, iterations=3)).end
    assert ends["update of 2"] - ends["update of 1"] == pytest.approx(ends["update of 1"] - ends["update of 0"])
    return float(ends["update of 1"] - ends["update of 0"])


def test_a_block_is_gathered_while_the_one_before_computes() -> None:
    #  time      0   1     3     5     7   8         11   12       15   16       19  20  20.5
    #  worker        [f1  ][f2  ][f3  ]    [b3      ]    [b2      ]    [b1      ]   [u ]
    #  network   [g1][g2]  [g3]        [g3][g2]      [r3][g1]      [r2]         [r1]
    assert iteration(FSDP, [(0,), (1,), (2,)], f=2, b=3, g=1, r=1) == 20.5
    assert iteration(with_options(FSDP, {"gather_ahead": 0}), [(0,), (1,), (2,)], f=2, b=3, g=1, r=1) == 24.5


@given(
    st.integers(1, 5), st.integers(1, 3), *[st.floats(0.1, 5)] * 2, st.floats(0, 1), st.floats(0, 5), st.integers(0, 3)
)  # fmt: skip
def test_gathers_that_are_shorter_than_a_block_are_hidden_but_for_the_first(
    blocks: int, parts: int, f: float, b: float, share: float, r: float, ahead: int
) -> None:
    g = share * min(f, b)
    each = [(layer,) for layer in range(blocks)]
    exposed = {0: blocks * g}.get(ahead, g)
    computing, sent = parts * blocks * (f + b), blocks * r
    preset = with_options(FSDP, {"gather_ahead": ahead, "accumulate": parts})
    if ahead <= 1:
        assert iteration(preset, each, f, b, g, r) == pytest.approx(parts * 2 * exposed + computing + sent + UPDATE)
    kept = with_options(preset, {"reshard": False})
    if ahead <= 1:
        assert iteration(kept, each, f, b, g, r) == pytest.approx(parts * exposed + computing + sent + UPDATE)
    assert iteration(preset, each, f, b, g, r) >= iteration(kept, each, f, b, g, r) - 1e-9


def test_where_the_network_is_slower_than_a_block_computing_waits_for_each_gather() -> None:
    assert iteration(FSDP, [(0,), (1,), (2,)], f=1, b=1, g=4, r=0) == 3 * 4 + 1 + 3 * 4 + 1 + UPDATE


def test_what_no_block_holds_is_gathered_once_and_sent_last() -> None:
    # Embedding and output around two blocks: gathered before the pass, with the first block's while the embedding runs.
    outside = [(0, 3), (1,), (2,)]
    assert [(run.block, run.layers) for run in runs_of(outside, 4)] == [(0, (0,)), (1, (1,)), (2, (2,)), (0, (3,))]
    # g root, f, g 1, f, (g 2 hidden) f, f; b, g 2, b, r, (g 1 hidden), b, r, b, r root.
    assert (
        iteration(FSDP, outside, f=2, b=3, g=1, r=1) == (1 + 2 + 1 + 2 + 2 + 2) + (3 + 1 + 3 + 1 + 3 + 1 + 3 + 1) + 0.5
    )


def test_layers_that_learn_nothing_go_with_those_before_them() -> None:
    assert [(run.block, run.layers) for run in runs_of([(1,), (3, 4)], 6)] == [(0, (0, 1, 2)), (1, (3, 4, 5))]
