"""Time of an all-reduce, α + β·m, fitted to the collectives of each node count, and over all of them by a law.

The law says how latency and bandwidth terms grow with p ranks; it follows from the reduction scheme (Thakur,
Rabenseifner & Gropp 2005, sections 4.5 and 5; the sum's own time counts as part of β).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.models.measured import kept
from stallpoint.models.statistics import (
    REPLICATES,
    Ensemble,
    Reals,
    bootstrap,
    columns,
    generator,
    groups,
    non_negative_fit,
)


@dataclass(frozen=True)
class Law:
    """What α and β·m are multiplied with on p ranks."""

    latency: Callable[[Reals], Reals]
    bandwidth: Callable[[Reals], Reals]


LAWS: dict[str, Law] = {
    "nodes": Law(np.ones_like, np.ones_like),
    "ring": Law(lambda p: 2 * (p - 1), lambda p: 2 * (p - 1) / p),
    "recursive-doubling": Law(lambda p: np.ceil(np.log2(p)), lambda p: np.ceil(np.log2(p))),
    "rabenseifner": Law(lambda p: 2 * np.ceil(np.log2(p)), lambda p: 2 * (p - 1) / p),
    "binary-tree": Law(lambda p: 2 * np.ceil(np.log2(p)), lambda p: 2 * np.ceil(np.log2(p))),
    "parameter-server": Law(lambda p: 2 * (p - 1), lambda p: 2 * (p - 1)),
}
"""``nodes`` is for one node count, the others for all, by reduction scheme; ``library`` is taken for a ring."""

Scheme = tuple[str, str, str]
"""Hardware, backend and reduction scheme: what one set of fits is for."""


@dataclass(frozen=True)
class Fit:
    """Seconds of an all-reduce as latency·α + bytes·β, each weighted as the law says."""

    law: str
    """One of `LAWS`."""
    nodes: int
    """Node count fitted; for a law over all of them the largest."""
    ranks: int
    alpha: Ensemble
    beta: Ensemble
    points: int
    """Message sizes fitted (over all node counts)."""
    residual: float
    """Median of \\|fit - measured\\| / measured."""


@dataclass(frozen=True)
class Communication:
    """All fits of one scheme."""

    by_nodes: Mapping[int, Fit]
    over_nodes: Fit

    def at(self, nodes: int) -> Fit:
        """The fit to use at `nodes`: its own where it was measured, else that over all node counts."""
        return self.by_nodes.get(nodes, self.over_nodes)

    def changed(self, *, latency: float, bandwidth: float) -> Communication:
        """The same links with `latency` times their latency and `bandwidth` times their bandwidth."""

        def of(fit: Fit) -> Fit:
            return replace(fit, alpha=fit.alpha * latency, beta=fit.beta / bandwidth)

        return Communication({nodes: of(fit) for nodes, fit in self.by_nodes.items()}, of(self.over_nodes))


def nominal(reduction: str, *, latency: float, bandwidth: float) -> Communication:
    """Links nobody measured, from what is published of them: `latency` [s] of a step and `bandwidth` [B/s]."""
    alpha, beta = (np.full(1 + REPLICATES, value) for value in (latency, 1 / bandwidth))
    return Communication({}, Fit(_law(reduction), 0, 0, alpha, beta, points=0, residual=0.0))


def all_reduce_seconds(fit: Fit, ranks: int, sizes: npt.ArrayLike) -> Ensemble:
    """Time to all-reduce messages of `sizes` bytes [...] over `ranks`, [1 + REPLICATES, ...].

    Nothing is communicated by one rank or of an empty buffer.
    """
    latency, bandwidth = all_reduce_parts(fit, ranks, sizes)
    return latency + bandwidth


def all_reduce_parts(fit: Fit, ranks: int, sizes: npt.ArrayLike) -> tuple[Ensemble, Ensemble]:
    """What of `all_reduce_seconds` is latency, which no byte fewer would save, and what is bandwidth."""
    sizes = np.asarray(sizes, dtype=np.float64)
    p, law = np.array(float(max(2, ranks))), LAWS[fit.law]
    shape = (-1, *([1] * sizes.ndim))
    sent = (sizes > 0) & (ranks > 1)
    latency = np.where(sent, fit.alpha.reshape(shape) * law.latency(p), 0.0)
    bandwidth = np.where(sent, fit.beta.reshape(shape) * law.bandwidth(p) * sizes, 0.0)
    return latency, bandwidth


def fit(collectives: pd.DataFrame, seed: int) -> dict[Scheme, Communication]:
    """Fits by scheme. One rank alone communicates nothing and is left out."""
    # A call ends when its slowest rank does.
    frame = kept(collectives)
    frame = frame[frame["ranks"] > 1]
    scheme = ["hardware", "backend", "reduction"]
    call = [*scheme, "nodes", "ranks", "cell", "repeat", "message_bytes", "sample"]
    slowest = frame.groupby(call)["seconds"].max().reset_index()
    return {key: _fit_scheme(key, rows, seed) for key, rows in groups(slowest, scheme)}


def table(fits: Mapping[Scheme, Communication]) -> list[dict[str, object]]:
    """Rows of the communication table."""
    return [_row(scheme, fit) for scheme, fits_here in fits.items() for fit in _all(fits_here)]


def _all(communication: Communication) -> Iterable[Fit]:
    return [*communication.by_nodes.values(), communication.over_nodes]


def _row(scheme: Scheme, fit: Fit) -> dict[str, object]:
    labels: dict[str, object] = dict(zip(("hardware", "backend", "reduction"), scheme, strict=True))
    labels |= {"fit": fit.law, "nodes": fit.nodes, "ranks": fit.ranks}
    quantities = columns("alpha", fit.alpha) | columns("beta", fit.beta)
    return {**labels, **quantities, "points": fit.points, "residual": fit.residual}


def _fit_scheme(scheme: Scheme, calls: pd.DataFrame, seed: int) -> Communication:
    samples: dict[tuple[int, int, int], Ensemble] = {}
    for (nodes, ranks, size), rows in groups(calls, ["nodes", "ranks", "message_bytes"]):
        # The same draws of repeats for every size: a slow repeat is slow throughout.
        random = generator(seed, "collectives", *scheme, nodes)
        samples[nodes, ranks, size] = bootstrap(rows["seconds"], rows["repeat"], random)
    counts = sorted({nodes for nodes, _, _ in samples})
    by_nodes = {n: _fit("nodes", {key: seconds for key, seconds in samples.items() if key[0] == n}) for n in counts}
    # Within a node messages take another way; a node alone speaks for the law only when nothing else was measured.
    between = {key: seconds for key, seconds in samples.items() if key[0] > 1}
    return Communication(by_nodes, _fit(_law(scheme[2]), between or samples))


def _law(reduction: str) -> str:
    return reduction if reduction in LAWS else "ring"


def _fit(law: str, samples: Mapping[tuple[int, int, int], Ensemble]) -> Fit:
    nodes, ranks, sizes = (np.array(values, dtype=np.float64) for values in zip(*samples, strict=True))
    observed = np.stack(list(samples.values()), axis=-1)
    design = np.stack([LAWS[law].latency(ranks), LAWS[law].bandwidth(ranks) * sizes], axis=-1)
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
