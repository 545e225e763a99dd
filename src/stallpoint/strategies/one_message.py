"""Strategies whose workers' weights differ, and which exchange all weights or gradients in one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallpoint.errors import InputError
from stallpoint.strategies.strategy import Strategy, at_least

if TYPE_CHECKING:
    from stallpoint.strategies.messages import Reals


class OneMessage(Strategy):
    """What they share; a preset names them by its algorithm."""

    choice = "algorithm"
    synchronous = False

    @property
    def updates_on_server(self) -> bool:
        """Not unless a strategy says so."""
        return False

    def check(self) -> None:
        """Of the one message."""
        super().check()
        at_least(self.options, 1, "period")
        if self.options.start != "after-backward" or self.options.grouping != "layer":
            raise InputError(
                f"start: algorithm {self.value} sends all weights or gradients in one message, so it goes with "
                "start: after-backward and grouping: layer"
            )
        if not self.options.lossless:
            raise InputError(
                f"gradient_bits: algorithm {self.value} sends whole values, with gradient_bits: 32 and top_k: 1"
            )

    def exchanged(self, latency: Reals, rest: Reals, ranks: int, computing: Reals) -> tuple[Reals, Reals]:
        """An exchange for each iteration that has one."""
        return self.frequency * latency, self.frequency * rest
