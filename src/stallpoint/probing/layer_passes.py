"""Times of layers over all forward and backward passes of an iteration; gradients may be accumulated in several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stallpoint.measure.clock import Clock, Mark
from stallpoint.measure.layer_timing import LayerTimer, LayerTimes
from stallpoint.measure.sent import Sent
from stallpoint.networks.layers import Layer


class LayerPasses:
    """Sums what a `LayerTimer` takes of each pair of passes; `ready` is called as by that."""

    def __init__(self, layers: Sequence[Layer], clock: Clock, ready: Callable[[int], None]) -> None:
        self._layers, self._clock = layers, clock
        self._timer = LayerTimer(layers, clock, ready)
        self._ended: tuple[Mark, Mark] | None = None
        self._times = self._none()

    def passed(self, forward_end: Mark, backward_end: Mark) -> None:
        """A backward pass has returned; what it took is read when the device has passed the marks."""
        self._ended = forward_end, backward_end

    def settle(self) -> None:
        """Add up the passes that have ended, before the layers are called again."""
        if self._ended is None:
            return
        self._clock.wait()
        before, times = self._times, self._timer.times(*self._ended)
        self._ended = None
        forward, backward = (
            [sum(pair) for pair in zip(*both, strict=True)]
            for both in ((before.forward, times.forward), (before.backward, times.backward))
        )
        self._times = replace(times, forward=forward, backward=backward)

    def forget(self) -> None:
        """Drop the marks of calls that were no training."""
        self._timer.forget()

    def columns(self, sent: Mapping[int, Sent]) -> dict[str, Sequence[Any]]:
        """Columns of `records.LAYERS` for the iteration that has ended; the next one begins."""
        self.settle()
        # Sharded parameters get theirs behind the message: what it carries is complete when it begins.
        begun = (sent[index].start if index in sent else None for index in range(len(self._layers)))
        ready = [_earlier(*both) for both in zip(self._times.gradient_ready, begun, strict=True)]
        times, self._times = replace(self._times, gradient_ready=ready), self._none()
        return times.columns(self._layers, sent, {})

    def remove(self) -> None:
        """Leave the layers as they were."""
        self._timer.remove()

    def _none(self) -> LayerTimes:
        """Those of an iteration that has just begun."""
        layers = len(self._layers)
        return LayerTimes([0.0] * layers, [0.0] * layers, [None] * layers, turns=0, waits=[])


def _earlier(first: float | None, second: float | None) -> float | None:
    """The earlier of two times; None where neither is known."""
    return min((time for time in (first, second) if time is not None), default=None)
