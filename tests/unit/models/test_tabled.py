"""A curve from tables of layers and messages, held against one written down by hand, and the example in the docs."""

import numpy as np
import pandas as pd
import pytest
from pages import ROOT, blocks

from stallpoint.errors import InputError
from stallpoint.models.iteration.tabled import predicted_curve
from stallpoint.strategies.presets import PRESETS

LATENCY, BANDWIDTH = 20e-6, 1e9
FORWARD, BACKWARD, UPDATE = (1e-3, 2e-3), (2e-3, 4e-3), 5e-4
SIZES = (4_000_000, 1_000_000)
BATCH = 8


def ring(ranks: int, size: float) -> float:
    """Around a ring, every rank sends 2 (p - 1) messages of a p-th."""
    return 2 * (ranks - 1) * (LATENCY + size / ranks / BANDWIDTH)


def layers(batch: int = BATCH) -> pd.DataFrame:
    part = batch / BATCH
    return pd.DataFrame({
        "layer": ["first", "second"], "gradient_bytes": SIZES, "worker_batch": batch,
        "forward": part * np.array(FORWARD), "backward": part * np.array(BACKWARD),
    })  # fmt: skip


MESSAGES = pd.DataFrame([
    {"nodes": ranks, "ranks": ranks, "message_bytes": size, "seconds": ring(ranks, size)}
    for ranks in (2, 4, 8)
    for size in (1000, *SIZES)
])  # fmt: skip


def iteration(ranks: int, part: float = 1.0) -> float:
    """The second layer's message goes while the first layer's backward pass runs; the first one's after both."""
    first, second = (ring(ranks, size) for size in SIZES)
    backward = part * BACKWARD[1] + max(part * BACKWARD[0], second)
    return part * sum(FORWARD) + backward + first + UPDATE


def test_layers_and_messages_make_the_curve_that_can_be_written_down() -> None:
    curve = predicted_curve(layers(), MESSAGES, [2, 4, 8, 16], batch=BATCH, strong=False, update=UPDATE)
    assert {ranks: curve.rate(ranks) for ranks in curve.counts} == pytest.approx(
        {1: BATCH / iteration(1)} | {ranks: ranks * BATCH / iteration(ranks) for ranks in (2, 4, 8, 16)}
    )
    assert all(curve.estimate(ranks).low < curve.rate(ranks) < curve.estimate(ranks).high for ranks in curve.counts)


def test_the_rest_of_the_mini_batch_is_computed_after_what_is_sent_by_another_preset() -> None:
    preset = PRESETS["naive"].preset  # all messages after the backward pass
    curve = predicted_curve(layers(), MESSAGES, [4], batch=BATCH, strong=False, preset=preset)
    took = sum(FORWARD) + sum(BACKWARD) + sum(ring(4, size) for size in SIZES)
    assert curve.rate(4) == pytest.approx(4 * BATCH / took)


def test_a_split_mini_batch_takes_what_tables_of_two_tell() -> None:
    both = pd.concat([layers(BATCH), layers(2 * BATCH)])
    curve = predicted_curve(both, MESSAGES, [2, 3, 4], batch=2 * BATCH, update=UPDATE)
    assert curve.counts == [1, 2, 4], "three workers cannot divide it"
    assert curve.rate(4) == pytest.approx(2 * BATCH / iteration(4, 0.5))
    assert predicted_curve(layers(), MESSAGES, [2], batch=2 * BATCH).counts == [2], "one mini-batch tells no other"


def test_repeats_that_agree_narrow_the_interval() -> None:
    repeats = pd.concat([layers().assign(repeat=repeat) for repeat in range(6)])
    messages = pd.concat([MESSAGES.assign(repeat=repeat) for repeat in range(6)])
    one, many = (
        predicted_curve(*tables, [8], batch=BATCH, strong=False).estimate(8)
        for tables in ((layers(), MESSAGES), (repeats, messages))
    )
    assert many.high - many.low < (one.high - one.low) / 2


def test_what_lacks_is_named() -> None:
    with pytest.raises(InputError, match="messages: no column seconds"):
        predicted_curve(layers(), MESSAGES.drop(columns="seconds"), [2], batch=BATCH)
    with pytest.raises(InputError, match="layers: forward is -1"):
        predicted_curve(layers().assign(forward=-1.0), MESSAGES, [2], batch=BATCH)
    lacking = pd.concat([layers().assign(repeat=0), layers().iloc[:1].assign(repeat=1)])
    with pytest.raises(InputError, match="at worker_batch 8 a repeat lacks a layer; give all of first, second"):
        predicted_curve(lacking, MESSAGES, [2], batch=BATCH)


def test_the_example_of_the_docs_says_what_stands_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    program, said = (one.text for one in blocks(ROOT / "docs/interfaces.md") if one.language in ("python", "text"))
    exec(compile(program, "docs/interfaces.md", "exec"), {})
    assert capsys.readouterr().out.strip() == said.strip()
