"""Time to a target as samples to the target times seconds of a sample, and what more workers lose by each factor."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class HalvesOfTarget:
    """Losses from few to many workers against the ideal time to a target: by samples, and by time per sample."""

    few: int
    many: int
    samples: float
    """Logarithm of the factor of samples to the target."""
    seconds: float
    """Logarithm of the factor of a worker's seconds for a sample."""

    @classmethod
    def of(cls, workers: tuple[int, int], needed: tuple[float, float], seconds: tuple[float, float]) -> HalvesOfTarget:
        """Return the losses between two counts of `workers`, from samples `needed` and `seconds` to the target."""
        (few, many), samples = workers, math.log(needed[1] / needed[0])
        return cls(few, many, samples, math.log(seconds[1] * many / (seconds[0] * few)) - samples)

    @property
    def half(self) -> str:
        """The factor that loses more: ``samples`` or ``seconds``."""
        return "samples" if self.samples > self.seconds else "seconds"

    def words(self, needed: str = "samples") -> str:
        """Return both losses in words, for each doubling of the workers."""
        doublings = math.log2(self.many / self.few)
        more, lost = math.exp(self.samples / doublings) - 1, 1 - math.exp(-self.seconds / doublings)
        return (
            f"from {self.few:,} to {self.many:,} each doubling needs {100 * abs(more):.0f} % "
            f"{'more' if more > -0.005 else 'fewer'} {needed} and {'loses' if lost > -0.005 else 'gains'} "
            f"{100 * abs(lost):.0f} % of its rate"
        )
