"""Parts of an iteration, shared by measured and predicted points."""

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
    """Seconds of one iteration: means over workers that do not lag, as ensembles [1 + REPLICATES]; NaN if unknown.

    The parts in `PATH` add up to `iteration_time`; the others are contained in them, or hidden.
    """

    iteration_time: Ensemble
    data_wait: Ensemble = field(default_factory=unknown_ensemble)
    """Exposed wait for a mini-batch."""
    host_to_device: Ensemble = field(default_factory=unknown_ensemble)
    forward: Ensemble = field(default_factory=unknown_ensemble)
    backward: Ensemble = field(default_factory=unknown_ensemble)
    communication: Ensemble = field(default_factory=unknown_ensemble)
    """All messages, hidden or exposed."""
    exposed_communication: Ensemble = field(default_factory=unknown_ensemble)
    """Communication after the backward pass."""
    update: Ensemble = field(default_factory=unknown_ensemble)
    straggling: Ensemble = field(default_factory=unknown_ensemble)
    """Time of the slowest worker beyond the mean of those that do not lag."""
    matrix: Ensemble = field(default_factory=unknown_ensemble)
    """Forward and backward of the layers in `measured.MATRIX_LAYERS`."""
    fully_connected: Ensemble = field(default_factory=unknown_ensemble)
    """Of the fully-connected ones among them."""

    @classmethod
    def measured(cls, **known: Ensemble) -> Parts:
        """Return the `known` parts of a measured iteration; straggling is the iteration time beyond those in `PATH`."""
        beyond = known["iteration_time"] - sum(known[name] for name in PATH if name in known)
        return cls(**known, straggling=beyond)

    @property
    def compute(self) -> Ensemble:
        """Forward pass, backward pass and update."""
        return self.forward + self.backward + self.update


UNKNOWN_PARTS = Parts(iteration_time=unknown_ensemble())
"""Parts of a point without data."""
