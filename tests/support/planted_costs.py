"""Planted prices, powers, failures and curves of cost, and failures event by event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from stallpoint.base.measured import Point
from stallpoint.base.statistics import Scatter, bootstrap
from stallpoint.models.answers.costs import (
    DEADLINE,
    EPOCH,
    Cost,
    Failures,
    choices,
    daly_interval,
    productive_share,
    young_interval,
)
from stallpoint.records.tables import ENERGY

COUNTS = (1, 2, 4, 8, 16, 32)
PRICE, WATTS = 3.5, 400.0
NOISE, VISITS = 0.03, 4
CURVES = 200
GIVEN = {"per_node_day": 0.0038, "checkpoint_seconds": 30.0, "restart_seconds": 300.0}
"""Failures of a node, about those of Llama 3."""
COUNTED, NODE_DAYS = 20, 5000
"""Failures that are expected to be counted in so many node-days."""
LLAMA = 419, 54, 16_384 // 8
"""Dubey et al. (2024), section 3.3.4: unexpected interruptions, days, nodes of 8 GPUs; more than 90 % of the time is
effective, and a checkpoint is written every few minutes."""


class Planted(NamedTuple):
    """A curve with its true times, and its costs as visits measure them."""

    times: dict[int, float]
    costs: list[Cost]

    def ends(self, question: str) -> dict[int, float]:
        """What the question limits, on each number of nodes."""
        return self.times if question == DEADLINE else self.prices

    def best(self, question: str, limit: float) -> int:
        """The true answer; 0: none."""
        limited, minimised = self.ends(question), self.prices if question == DEADLINE else self.times
        return min((n for n in COUNTS if limited[n] <= limit), key=lambda n: minimised[n], default=0)

    @property
    def prices(self) -> dict[int, float]:
        """The true prices."""
        return {n: n * PRICE * time / 3600 for n, time in self.times.items()}


def planted() -> Iterator[Planted]:
    """Curves of time that fall as 1/n, and grow by communication; visits differ by `NOISE`."""
    random = np.random.default_rng(5)
    for _ in range(CURVES):
        serial, sent = random.uniform(0.005, 0.1), random.uniform(0.0, 0.02)
        times = {n: 36_000 * ((1 - serial) / n + serial + sent * np.log2(n)) for n in COUNTS}
        costs = [
            Cost(Point("net", "gpu", "local", "strong", "wfbp", 0, 64, 1, n, n, 64, 64 // n), "measured", EPOCH,
                 bootstrap(time * np.exp(random.normal(0, NOISE, VISITS)), np.arange(VISITS), random, np.mean,
                           Scatter(NOISE, 20.0)), {"power": WATTS, "price": PRICE})
            for n, time in times.items()
        ]  # fmt: skip
        yield Planted(times, costs)


def chosen(curve: Planted, question: str, limit: float) -> dict[str, Any]:
    """The row of the question's choice."""
    asked = (limit, None) if question == DEADLINE else (None, limit)
    (row,) = choices(curve.costs, *asked, epochs=1)
    assert row["question"] == question
    return row


def decided(question: str, curves: list[Planted]) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]]]:
    """The true number and the row of choices, at limits anywhere, and at the true value of a number of nodes, which is
    met or missed by chance."""
    random = np.random.default_rng(7)
    clear, close = [], []
    for curve in curves:
        ends = curve.ends(question)
        limit = float(np.exp(random.uniform(*np.log([min(ends.values()), max(ends.values())]))))
        for cases, at in ((clear, limit), (close, ends[random.choice(COUNTS[1:4])])):
            cases.append((curve.best(question, at), chosen(curve, question, at)))
    return clear, close


def energy_of_visits(watts: float, random: np.random.Generator, **changes: object) -> pd.DataFrame:
    """Rows of visits to a cell on two nodes with two ranks each, of which a node draws `watts`, 30 % in GPUs."""
    rows = [
        {
            "cell": "train/a", "hardware": "gpu", "nodes": 2, "ranks": 4, "repeat": 1, "rank": rank, "visit": visit,
            "kernel": f"node{rank // 2}", "seconds": 20.0, "node_energy": 0.7 * 20 * drawn,
            "gpu_energy": 0.15 * 20 * drawn, "counted": "intel-rapl:0 package-0, intel-rapl:0:0 dram, GPU",
            "not_counted": "", **changes,
        }
        for visit, drawn in enumerate(watts * np.exp(random.normal(0, NOISE, VISITS)), start=1)
        for rank in range(4)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=ENERGY.names)


def simulated(between: float, interval: float, checkpoint: float, restart: float) -> float:
    """Share of the time that is kept, event by event: a failure loses what came after the last checkpoint."""
    time_to_failure = np.random.default_rng(3).exponential(between, 1_000_000)
    training = np.maximum(time_to_failure - restart, 0.0)
    return float(interval * np.floor(training / (interval + checkpoint)).sum() / time_to_failure.sum())


def differences() -> Iterator[float]:
    """How far the closed form lies from the simulation, relatively."""
    for between in (1e3, 1e4, 1e6):
        for checkpoint in (1.0, 60.0):
            for restart in (0.0, 300.0):
                at = np.array(between)
                for interval in (daly_interval(checkpoint, at), 2 * young_interval(checkpoint, at)):
                    share = float(productive_share(at, interval, checkpoint, restart))
                    yield abs(share / simulated(between, float(interval), checkpoint, restart) - 1)


def counted_rates(count: int = 400) -> Iterator[Failures]:
    """Failures at rates that were counted, each in another draw."""
    for seed, found in enumerate(np.random.default_rng(1).poisson(COUNTED, count)):
        yield Failures.of("gpu", GIVEN | {"per_node_day": found / NODE_DAYS, "counted": int(found)}, seed)


def llama() -> Failures:
    """Failures as Llama 3's report counts them."""
    count, days, nodes = LLAMA
    rate = count / (days * nodes)
    return Failures.of("h100", GIVEN | {"per_node_day": rate, "counted": count, "checkpoint_seconds": 5.0}, 0)
