"""A made-up cluster with one trait, its studies, and what is true of it: times, gains and stalls.

Records are those of `synthetic` (tests/support), which knows nothing of `stallpoint.models`; the noise of visits, cells
and jobs is laid over them.
"""

# ruff: noqa: E402

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path[:0] = [str(Path(__file__).parents[2] / "tests" / "support")]

import synthetic
from synthetic import Layer, Truth
from typing_extensions import override

from stallpoint.base.measured import TIMES, trained
from stallpoint.base.stall import Stall
from stallpoint.study.kinds.train_kind import TrainCell

ADDED_BYTES = 20e9
"""Traffic of the host's memory, B/s; `synthetic` measures it as triad of its copies cells."""
PASSES = 4
"""Mini-batches of a remedy that accumulates or enlarges them, and readers in place of one."""
MANY = 40
"""Iterations whose mean is the truth: ranks that scatter wait for the slowest."""


NETWORK = tuple(replace(layer, fixed=layer.fixed / 10) for layer in synthetic.NETWORK)


@dataclass(frozen=True)
class WorldTruth(Truth):
    """A cluster with a fast network, whose traits are off unless given."""

    layers: tuple[Layer, ...] = NETWORK
    beta: float = 0.2e-9
    update: float = 10e-3
    noise: float = 0.01
    cache_below: int = 0
    """Samples a worker below which everything fits into its cache."""
    cache: float = 1.0
    """Factor on the time of a sample there."""
    storage_rate: float = np.inf
    """Samples/s that storage ``shared`` gives all nodes together."""
    slow_beyond: int = 10**6
    """Workers beyond which computing is slower."""
    slow: float = 1.0
    """By this factor."""
    slow_doubling: float = 1.0
    """And by this one for each doubling of workers."""

    @override
    def layer(self, layer: Layer, b: int, ranks: int) -> float:
        cached = self.cache if b < self.cache_below else 1.0
        slower = self.slow * self.slow_doubling ** np.log2(ranks / self.slow_beyond) if ranks > self.slow_beyond else 1
        return super().layer(layer, b, ranks) * cached * slower

    @override
    def read_seconds(self, storage: str, nodes: int) -> float:
        return max(super().read_seconds(storage, nodes), 2 * nodes / self.storage_rate)

    def seconds(self, cell: TrainCell, passes: int = 1) -> float:
        """An iteration of `passes` mini-batches between two updates, s."""
        pass_seconds = 3 * sum(self.layer(layer, cell.worker_batch, cell.ranks) for layer in self.layers)
        added = (passes - 1) * (pass_seconds + 3 * self.gradient_bytes / ADDED_BYTES)
        read = cell.worker_batch * (self.read_seconds(cell.storage, cell.nodes) + self.decode)
        return max(passes * read / cell.readers, self.iteration(cell) + added)


@dataclass(frozen=True)
class World:
    """A cluster, how it is measured, and the noise of that."""

    name: str
    truth: WorldTruth = field(default_factory=WorldTruth)
    nodes: Sequence[int] = (1, 2, 4, 8)
    study: Mapping[str, Any] = field(default_factory=dict)
    """Options of `synthetic.study`."""
    without: Sequence[str] = ()
    """Tables that the study lacks."""
    visits: float = 0.005
    """Scatter of visits, of cells and of jobs: standard deviations of the logarithm."""
    cells: float = 0.0
    jobs: float = 0.0
    slow_cells: float = 0.0
    """Part of the cells that are 1.25 times as slow."""
    slow_visits: float = 0.0
    peaks: float = 0.015
    """Scatter of a cell's memory peak, between runs."""

    def measured(self, seed: int) -> dict[str, pd.DataFrame]:
        """All tidy tables of one study."""
        usual = {"weak": False, "storages": ("shared",), "syncs": ("wfbp",), "prefetches": (2,), "repeats": 1}
        tidy = synthetic.study(
            self.truth, nodes=self.nodes, visits=4, iterations=3, seed=seed, **{**usual, **self.study}
        )
        tidy |= {name: tidy[name].iloc[:0] for name in self.without}
        for name in {table for table in self.without if table.startswith(("copies", "storage"))}:
            tidy["runs"] = tidy["runs"][tidy["runs"]["kind"] != name.split("_")[0]]
        random = np.random.default_rng([58, seed])
        tidy = self._noisy(tidy, random)
        there = tidy["environments"]
        repeats = there["cell"].map(dict(zip(tidy["runs"]["cell"], tidy["runs"]["repeat"].astype(str), strict=True)))
        # One job measures all cells of a block; where cells differ, each had one of its own.
        job = there["cell"] if self.cells or self.slow_cells else repeats
        if self.jobs:
            job = there["cell"].str.contains("nodes~[12]/").map({True: "1", False: "2"})
        tidy["environments"] = there.assign(node=there["node"] + "." + repeats, slurm_job_id=job)
        return tidy

    def _noisy(self, tidy: dict[str, pd.DataFrame], random: np.random.Generator) -> dict[str, pd.DataFrame]:
        jobs = self.jobs * random.standard_normal(2)
        cells = tidy["iterations"][["cell", "nodes"]].drop_duplicates().set_index("cell")["nodes"]
        of_cells = {
            cell: jobs[int(nodes > 2)]
            + self.cells * random.standard_normal()
            + np.log(1.25) * (random.random() < self.slow_cells)
            for cell, nodes in cells.items()
        }
        visits = tidy["iterations"][["cell", "visit"]].drop_duplicates().itertuples(index=False)
        factors = {
            (cell, visit): of_cells[cell]
            + self.visits * random.standard_normal()
            + np.log(1.25) * (random.random() < self.slow_visits)
            for cell, visit in visits
        }
        marks = ("gradient_ready", "all_reduce_start", "all_reduce_end")
        for name in ("iterations", "layers"):
            rows = tidy[name]
            there = np.exp([factors[key] for key in zip(rows["cell"], rows["visit"], strict=True)])
            times = [column for column in (*TIMES, "read", "decode", *marks) if column in rows]
            tidy[name] = rows.assign(**{column: rows[column] * there for column in times})
        of_peaks = {cell: np.exp(self.peaks * random.standard_normal()) for cell in of_cells}
        peaks = tidy["peak_memory"]
        tidy["peak_memory"] = peaks.assign(host_peak=peaks["host_peak"] * peaks["cell"].map(of_peaks))
        return tidy

    # --- what is true ---------------------------------------------------------------------------

    @cached_property
    def cell(self) -> TrainCell:
        """The curve's cell on one worker."""
        cells = trained(self.measured(0)["runs"]).values()
        return next(cell for cell in cells if cell.scaling == "strong" and cell.nodes == 1)

    def at(self, nodes: int) -> TrainCell:
        """The same at a node count."""
        return replace(self.cell, nodes=nodes, worker_batch=self.cell.batch // nodes, iterations=MANY, visits=1)

    def iteration(self, nodes: int) -> float:
        """Mean iteration time, s."""
        rows = synthetic.records([self.at(nodes)], lambda _: self.truth, seed=1)["iterations"]
        slow = 1 + 0.25 * (self.slow_cells + self.slow_visits)
        return slow * float(rows.loc[~rows["warmup"].astype(bool), "iteration_time"].mean())

    @cached_property
    def stall(self) -> int:
        """Where the measured counts stall; the largest where they do not."""
        return Stall.of({n: np.array([-np.log(self.iteration(n))]) for n in self.nodes}, 0.1).ranks

    @cached_property
    def gains(self) -> dict[str, float]:
        """Gains of remedies at the largest measured count, by the words that name them."""
        here, truth = self.at(max(self.nodes)), self.truth
        before = truth.seconds(here)
        staged = replace(truth, storage_rate=np.inf, contention=0.0)
        changed: dict[str, tuple[int, Callable[[], float]]] = {
            f"{PASSES} × the mini-batch": (
                PASSES, lambda: truth.seconds(replace(here, worker_batch=PASSES * here.worker_batch))
            ),
            f"{PASSES} mini-batches between two updates": (PASSES, lambda: truth.seconds(here, PASSES)),
            "links with 10 × the bandwidth": (1, lambda: replace(truth, beta=truth.beta / 10).seconds(here)),
            "a copy of the data on each node": (1, lambda: staged.seconds(here)),
        }  # fmt: skip
        return {words: samples * before / after() for words, (samples, after) in changed.items()}
