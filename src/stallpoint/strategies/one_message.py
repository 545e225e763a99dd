"""Strategies whose workers have different weights. An exchange sends all weights or gradients in one message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.strategies.options import FamilyOptions, check_minimum
from stallpoint.strategies.strategy import Strategy

if TYPE_CHECKING:
    from stallpoint.strategies.buckets import Reals


@dataclass(frozen=True)
class PeriodOptions(FamilyOptions):
    """Options of strategies whose workers exchange once in several iterations."""

    period: int = 1
    """Number of iterations from one exchange to the next; for downpour, from one push to the next."""

    def __post_init__(self) -> None:
        check_minimum(self, 1, "period")

    @property
    @override
    def rounds(self) -> int:
        return self.period


class OneMessage(Strategy):
    """Base of strategies that a preset selects by its option ``algorithm``."""

    choice = "algorithm"
    own: ClassVar[type[FamilyOptions]] = PeriodOptions
    synchronous = False

    @property
    @override
    def frequency(self) -> float:
        return 1 / self.options.family(PeriodOptions).period

    @property
    @override
    def updates_on_server(self) -> bool:
        """Return whether servers update the weights; by default they do not."""
        return False

    @override
    def check(self) -> None:
        super().check()
        if self.options.start != "after-backward" or self.options.grouping != "layer":
            raise InputError(
                f"start: algorithm {self.value} sends all weights or gradients in one message, so it goes with "
                "start: after-backward and grouping: layer"
            )
        if not self.options.lossless:
            raise InputError(
                f"gradient_bits: algorithm {self.value} sends uncompressed values, with gradient_bits: 32 and top_k: 1"
            )

    @override
    def exchanged(self, latency: Reals, transfer: Reals, ranks: int, computing: Reals) -> tuple[Reals, Reals]:
        """Return the mean latency and transfer time of the exchanges per iteration, s."""
        return self.frequency * latency, self.frequency * transfer
