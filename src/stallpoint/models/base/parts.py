"""One iteration by its parts: what measured and predicted points have in common."""

from __future__ import annotations

from dataclasses import dataclass, field

from stallpoint.models.base.statistics import Ensemble, unknown_ensemble

STRAGGLING = "straggling"
PATH = (
    "data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update", STRAGGLING,
)  # fmt: skip
"""Parts of the critical path, in the order of an iteration."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Seconds of one iteration, means over its workers that do not lag; ensembles [1 + REPLICATES], not a number where
    unknown.

    Those in `PATH` add up to `iteration_time`; the others are parts of them, or hidden behind them.
    """

    iteration_time: Ensemble
    data_wait: Ensemble = field(default_factory=unknown_ensemble)
    """Waiting for a mini-batch; what reading ahead hides is not in it."""
    host_to_device: Ensemble = field(default_factory=unknown_ensemble)
    forward: Ensemble = field(default_factory=unknown_ensemble)
    backward: Ensemble = field(default_factory=unknown_ensemble)
    communication: Ensemble = field(default_factory=unknown_ensemble)
    """All messages, hidden or not."""
    exposed_communication: Ensemble = field(default_factory=unknown_ensemble)
    """Of the communication what comes after the backward pass."""
    update: Ensemble = field(default_factory=unknown_ensemble)
    straggling: Ensemble = field(default_factory=unknown_ensemble)
    """What the slowest worker takes beyond the mean of those that do not lag."""
    matrix: Ensemble = field(default_factory=unknown_ensemble)
    """Forward and backward of the layers in `measured.MATRIX_LAYERS`."""
    fully_connected: Ensemble = field(default_factory=unknown_ensemble)
    """Of the fully-connected ones among them."""

    @classmethod
    def measured(cls, **known: Ensemble) -> Parts:
        """The `known` parts of a measured iteration, and as straggling what it takes beyond those in `PATH`."""
        beyond = known["iteration_time"] - sum(known[name] for name in PATH if name in known)
        return cls(**known, straggling=beyond)

    @property
    def compute(self) -> Ensemble:
        """Forward pass, backward pass and update."""
        return self.forward + self.backward + self.update


UNKNOWN_PARTS = Parts(iteration_time=unknown_ensemble())
"""Of a point of which nothing is known."""
