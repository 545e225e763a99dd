"""Problems that were planted in made-up studies of four workers, each with the remedy that mends it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
from synthetic import Layer, Truth, study

ONE: dict[str, Any] = {
    "storages": ("local",), "syncs": ("wfbp",), "prefetches": (0,), "repeats": 1, "iterations": 3,
    "nodes": (1, 2, 4),
}  # fmt: skip
"""A study of one curve."""
PROPORTIONAL = tuple(
    Layer(name, kind, 1e-5, each, size)
    for name, kind, each, size in (
        ("conv1", "convolution", 0.40e-3, 140_000),
        ("relu1", "relu", 0.05e-3, 0),
        ("conv2", "convolution", 0.30e-3, 1_230_000),
        ("fc6", "fully-connected", 0.10e-3, 4_000_000),
    )
)
"""Layers whose times are in proportion to b: nothing is wrong with them."""
FAST = Truth(layers=PROPORTIONAL, alpha=5e-6, beta=1e-11, read=1e-6, decode=1e-6, update=1e-4, noise=0.01)
"""Nothing limits it."""


def fixed(seconds: float, *kinds: str) -> tuple[Layer, ...]:
    """The layers, of which those of `kinds` take so long however small the mini-batch."""
    return tuple(replace(layer, fixed=seconds) if layer.type in kinds else layer for layer in PROPORTIONAL)


@dataclass(frozen=True)
class Problem:
    """What is wrong, and what training is like once the remedy is taken."""

    truth: Truth
    right: str
    """What the right remedy changes."""
    mended: Truth
    more: dict[str, Any] = field(default_factory=dict)
    """Of the study, beside `ONE`."""
    batches: int = 1
    """How many mini-batches the mended one is as large as."""

    @property
    def gain(self) -> float:
        """Throughput on four workers with the remedy over that without, both without noise."""
        settings = ONE | self.more
        before = _seconds(study(replace(self.truth, noise=0.0), **settings))
        after = _seconds(study(replace(self.mended, noise=0.0), **settings, batch=64 * self.batches))
        return self.batches * before / after

    def records(self, noise: float, seed: int = 0) -> dict[str, pd.DataFrame]:
        """Tidy tables of the study, whose times have this standard deviation of their logarithm."""
        return study(replace(self.truth, noise=noise), **ONE | self.more, seed=seed)


def _seconds(tidy: dict[str, pd.DataFrame]) -> float:
    rows = tidy["iterations"].query("scaling == 'strong' and nodes == 4 and not warmup")
    return float(rows.groupby("iteration")["iteration_time"].max().median())


_SLOW_LINK, _SLOW_LOADER, _STRAGGLING = replace(FAST, beta=2e-8), replace(FAST, decode=20e-3), replace(FAST, lag=3.0)
_MATRICES = replace(FAST, layers=fixed(60e-3, "convolution", "fully-connected"))
_LAUNCHES, _COMPILED = (
    replace(FAST, layers=fixed(seconds, "convolution", "fully-connected", "relu")) for seconds in (60e-3, 0.0)
)

PROBLEMS = {
    "slow link": Problem(_SLOW_LINK, "link", replace(_SLOW_LINK, beta=2e-9)),
    "slow loader": Problem(_SLOW_LOADER, "readers", replace(_SLOW_LOADER, decode=5e-3), {"prefetches": (2,)}),
    "straggling node": Problem(_STRAGGLING, "node", replace(_STRAGGLING, lag=1.0)),
    "small matrices": Problem(_MATRICES, "mini-batch", _MATRICES, batches=4),
    "launch-bound": Problem(_LAUNCHES, "launches", _COMPILED),
}
