"""Growth of an all-reduce's time with the workers, by reduction scheme: factors on α and β·m.

The factors are from Thakur, Rabenseifner & Gropp (2005), sections 4.5 and 5; the time to add counts as part of β. A
parameter server exchanges messages with every other rank over its one link (Keuper & Pfreundt, section IV-A with
footnote 13). Each of k servers does so with a k-th of every message. The hierarchical scheme reduces inside each node,
then around a ring of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import INTERVAL, REPLICATES, Ensemble, Reals
from stallpoint.strategies.options import SHARDED_SERVERS, sharded_servers


@dataclass(frozen=True)
class ReductionLaw:
    """Factors on α and β·m among p ranks."""

    latency: Callable[[Reals], Reals]
    bandwidth: Callable[[Reals], Reals]


def _tree_steps(p: Reals) -> Reals:
    return np.ceil(np.log2(p))


RING = ReductionLaw(lambda p: 2 * (p - 1), lambda p: 2 * (p - 1) / p)
HALF_RING = ReductionLaw(lambda p: p - 1, lambda p: (p - 1) / p)
"""Factors of operations in which each rank has a part of the message: half a ring's all-reduce."""
HIERARCHICAL = "hierarchical"
REDUCTION_LAWS: dict[str, ReductionLaw] = {
    "place": ReductionLaw(np.ones_like, np.ones_like),
    "ring": RING,
    "recursive-doubling": ReductionLaw(_tree_steps, _tree_steps),
    "rabenseifner": ReductionLaw(lambda p: 2 * _tree_steps(p), lambda p: 2 * (p - 1) / p),
    "binary-tree": ReductionLaw(lambda p: 2 * _tree_steps(p), lambda p: 2 * _tree_steps(p)),
    "parameter-server": ReductionLaw(lambda p: 2 * (p - 1), lambda p: 2 * (p - 1)),
    SHARDED_SERVERS: RING,
    HIERARCHICAL: RING,
    "all-gather": HALF_RING,
    "reduce-scatter": HALF_RING,
    "all-to-all": HALF_RING,
    "broadcast": ReductionLaw(_tree_steps, _tree_steps),
    "send-receive": ReductionLaw(np.ones_like, np.ones_like),
}
"""Laws by scheme or operation. ``place`` is for a single placement, the others for all. p is the number of ranks, for
`HIERARCHICAL` the number of nodes."""


def law_of(scheme: str) -> ReductionLaw | None:
    """Return the law of a scheme (`stallpoint.strategies.presets.Preset.scheme`); None if the library chooses."""
    if not scheme.startswith(f"{SHARDED_SERVERS}-"):
        return REDUCTION_LAWS.get(scheme)
    servers = sharded_servers(scheme)
    return ReductionLaw(RING.latency, lambda p: 2 * (p - 1) / np.minimum(servers, p))


_TAILS = ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2)
CERTAIN_SHARE = 0.95
"""Fraction of the draws above which laws are named."""


@dataclass(frozen=True)
class LawBySize:
    """The law of each message size."""

    laws: tuple[str, ...]
    """Schemes that `law_of` knows, for rising sizes."""
    switch_sizes: tuple[float, ...] = ()
    """Sizes at which the next law begins, bytes; divided by the ranks with `per_rank`."""
    per_rank: bool = False
    constant: bool = False
    """Whether the latency has a fitted part that does not grow with the ranks."""
    constant_part: float = 0.0
    """Constant part of the latency on two ranks, if only one count was measured, so that no fit identifies it."""
    floor: bool = False
    """Whether every message takes at least a time common to all sizes and ranks."""

    @property
    def name(self) -> str:
        """Return the laws, and where each ends, e.g. ``recursive-doubling below 32768 B, rabenseifner``."""
        unit = "B for each rank" if self.per_rank else "B"
        ends = [f"{law} below {size:.0f} {unit}" for law, size in zip(self.laws, self.switch_sizes, strict=False)]
        more = {"a constant time": self.constant or self.constant_part, "a floor": self.floor}
        return ", ".join([*ends, self.laws[-1], *(name for name, has in more.items() if has)])

    def factors(self, participants: Reals, sizes: Reals) -> tuple[Reals, Reals]:
        """Return the factors on α and β·m, for messages of `sizes` [...] among `participants` [...]."""
        index = np.searchsorted(self.switch_sizes, sizes / participants if self.per_rank else sizes, side="right")
        laws = [law for name in self.laws if (law := law_of(name))]
        latency, bandwidth = (
            np.choose(index, [np.broadcast_to(of(participants), np.shape(sizes)) for of in factor])
            for factor in ([law.latency for law in laws], [law.bandwidth for law in laws])
        )
        if self.constant_part:
            latency = self.constant_part * laws[0].latency(np.array(2.0)) + (1 - self.constant_part) * latency
        return latency, bandwidth


@dataclass(frozen=True)
class Laws:
    """Candidate laws, and the one that each replicate follows."""

    options: tuple[LawBySize, ...]
    drawn: npt.NDArray[np.int64]
    """Position among `options`, [1 + REPLICATES]; the first is the most probable one."""
    reference: float = 2.0
    """Ranks of the largest measured placement."""

    @classmethod
    def only(cls, law: str) -> Laws:
        """Return laws with a single, certain candidate."""
        return cls((LawBySize((law,)),), np.zeros(1 + REPLICATES, dtype=np.int64))

    @property
    def value(self) -> LawBySize:
        """Return the law that the estimate follows; replicates may follow others."""
        return self.options[int(self.drawn[0])]

    @property
    def name(self) -> str:
        """Return the certain law's name, or ``average (...)`` with the laws of most replicates."""
        shares: dict[str, float] = {}
        for option, count in zip(self.options, np.bincount(self.drawn[1:], minlength=len(self.options)), strict=True):
            laws = " then ".join(option.laws)
            shares[laws] = shares.get(laws, 0.0) + count / (len(self.drawn) - 1)
        if shares[" then ".join(self.value.laws)] >= CERTAIN_SHARE:
            return self.value.name
        ordered = sorted(shares, key=lambda laws: -shares[laws])
        majority = int(np.searchsorted(np.cumsum([shares[laws] for laws in ordered]), 0.5)) + 1
        return f"average ({', '.join(ordered[:majority])})"

    def factors(self, participants: float, sizes: Reals) -> tuple[Ensemble, Ensemble]:
        """Return the factors on α and β·m for messages of `sizes` [...], each [1 + REPLICATES, ...].

        Beyond the measured placements the estimate is the middle of the candidates. Latency may grow with the ranks or
        with their logarithm, so its middle is the geometric one of its interval. For bandwidth it is the median.
        """
        latency, bandwidth = self._drawn(participants, sizes)
        if len(self.options) > 1 and participants > self.reference:
            known = self._drawn(self.reference, sizes)
            low, high = np.quantile((latency / known[0])[1:], _TAILS, axis=0, method="inverted_cdf")
            latency[0] = known[0][0] * np.sqrt(low * high)
            growth = (bandwidth / known[1])[1:]
            bandwidth[0] = known[1][0] * np.quantile(growth, 0.5, axis=0, method="inverted_cdf")
        return latency, bandwidth

    def _drawn(self, participants: float, sizes: Reals) -> tuple[Ensemble, Ensemble]:
        found = [option.factors(np.array(float(participants)), sizes) for option in self.options]
        latency, bandwidth = (np.stack(of)[self.drawn] for of in zip(*found, strict=True))
        return latency, bandwidth
