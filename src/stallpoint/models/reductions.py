"""How the time of an all-reduce grows with the workers, by reduction scheme: what α and β·m are multiplied with.

Thakur, Rabenseifner & Gropp (2005), sections 4.5 and 5; the sum's own time counts as part of β. A parameter server
receives from and sends to every other rank over its one link (Keuper & Pfreundt, section IV-A with footnote 13). The
hierarchical scheme reduces inside each node and then between the nodes, one message for each node, around a ring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stallpoint.models.statistics import Reals


@dataclass(frozen=True)
class Law:
    """What α and β·m are multiplied with among p ranks."""

    latency: Callable[[Reals], Reals]
    bandwidth: Callable[[Reals], Reals]


def _steps(p: Reals) -> Reals:
    """Rounds in which p ranks pair up, log₂ p rounded up."""
    return np.ceil(np.log2(p))


RING = Law(lambda p: 2 * (p - 1), lambda p: 2 * (p - 1) / p)
HIERARCHICAL = "hierarchical"
LAWS: dict[str, Law] = {
    "nodes": Law(np.ones_like, np.ones_like),
    "ring": RING,
    "recursive-doubling": Law(_steps, _steps),
    "rabenseifner": Law(lambda p: 2 * _steps(p), lambda p: 2 * (p - 1) / p),
    "binary-tree": Law(lambda p: 2 * _steps(p), lambda p: 2 * _steps(p)),
    "parameter-server": Law(lambda p: 2 * (p - 1), lambda p: 2 * (p - 1)),
    HIERARCHICAL: RING,
}
"""``nodes`` is for one node count, the others for all. p is the number of ranks, for `HIERARCHICAL` that of nodes."""
