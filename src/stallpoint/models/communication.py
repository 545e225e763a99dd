"""Time of an all-reduce, α + β·m, fitted to the collectives of each node count and to a ring over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.models.measured import kept
from stallpoint.models.statistics import Ensemble, Reals, bootstrap, columns, generator, groups, non_negative_fit


@dataclass(frozen=True)
class Fit:
    """Seconds of an all-reduce as latency·α + bytes·β, each weighted as the law says."""

    law: str
    """``nodes``: α + β·m; ``ring``: 2(p-1)·α + 2(p-1)/p·β·m."""
    nodes: int
    """Node count fitted; for the ring the largest."""
    ranks: int
    alpha: Ensemble
    beta: Ensemble
    points: int
    """Message sizes fitted (over all node counts)."""
    residual: float
    """Median of \\|fit - measured\\| / measured."""


@dataclass(frozen=True)
class Communication:
    """All fits of one hardware entry."""

    by_nodes: Mapping[int, Fit]
    ring: Fit

    def at(self, nodes: int) -> Fit:
        """The fit to use at `nodes`: its own where it was measured, else the ring."""
        return self.by_nodes.get(nodes, self.ring)


def all_reduce_seconds(fit: Fit, ranks: int, sizes: npt.ArrayLike) -> Ensemble:
    """Time to all-reduce messages of `sizes` bytes [...] over `ranks`, [1 + REPLICATES, ...].

    Nothing is communicated by one rank or of an empty buffer.
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    latency, bandwidth = _design(fit.law, np.full(sizes.shape, float(ranks)), sizes)
    shape = (-1, *([1] * sizes.ndim))
    seconds = fit.alpha.reshape(shape) * latency + fit.beta.reshape(shape) * bandwidth
    return np.where((sizes > 0) & (ranks > 1), seconds, 0.0)


def fit(collectives: pd.DataFrame, seed: int) -> dict[str, Communication]:
    """Fits by hardware. One rank alone communicates nothing and is left out."""
    # A call ends when its slowest rank does.
    frame = kept(collectives)
    frame = frame[frame["ranks"] > 1]
    call = ["hardware", "nodes", "ranks", "cell", "repeat", "message_bytes", "sample"]
    slowest = frame.groupby(call)["seconds"].max().reset_index()
    return {hardware: _fit_hardware(hardware, rows, seed) for hardware, rows in groups(slowest, "hardware")}


def table(fits: Mapping[str, Communication]) -> list[dict[str, object]]:
    """Rows of the communication table."""
    return [_row(hardware, fit) for hardware, fits_here in fits.items() for fit in _all(fits_here)]


def _all(communication: Communication) -> Iterable[Fit]:
    return [*communication.by_nodes.values(), communication.ring]


def _row(hardware: str, fit: Fit) -> dict[str, object]:
    labels = {"hardware": hardware, "fit": fit.law, "nodes": fit.nodes, "ranks": fit.ranks}
    quantities = columns("alpha", fit.alpha) | columns("beta", fit.beta)
    return {**labels, **quantities, "points": fit.points, "residual": fit.residual}


def _design(law: str, ranks: Reals, sizes: Reals) -> tuple[Reals, Reals]:
    """What α and β are multiplied with."""
    if law == "ring":
        return 2 * (ranks - 1), 2 * (ranks - 1) / ranks * sizes
    return np.ones_like(sizes), sizes


def _fit_hardware(hardware: str, calls: pd.DataFrame, seed: int) -> Communication:
    samples: dict[tuple[int, int, int], Ensemble] = {}
    for (nodes, ranks, size), rows in groups(calls, ["nodes", "ranks", "message_bytes"]):
        # The same draws of repeats for every size: a slow repeat is slow throughout.
        random = generator(seed, "collectives", hardware, nodes)
        samples[nodes, ranks, size] = bootstrap(rows["seconds"], rows["repeat"], random)
    counts = sorted({nodes for nodes, _, _ in samples})
    by_nodes = {n: _fit("nodes", {key: seconds for key, seconds in samples.items() if key[0] == n}) for n in counts}
    # Within a node messages take another way; a node alone speaks for the ring only when nothing else was measured.
    between = {key: seconds for key, seconds in samples.items() if key[0] > 1}
    return Communication(by_nodes, _fit("ring", between or samples))


def _fit(law: str, samples: Mapping[tuple[int, int, int], Ensemble]) -> Fit:
    nodes, ranks, sizes = (np.array(values, dtype=np.float64) for values in zip(*samples, strict=True))
    observed = np.stack(list(samples.values()), axis=-1)
    design = np.stack(_design(law, ranks, sizes), axis=-1)
    coefficients = non_negative_fit(design, observed)
    fitted = design @ coefficients[0]
    return Fit(
        law=law,
        nodes=int(nodes.max()),
        ranks=int(ranks.max()),
        alpha=coefficients[:, 0],
        beta=coefficients[:, 1],
        points=len(sizes),
        residual=float(np.median(np.abs(fitted - observed[0]) / observed[0])),
    )
