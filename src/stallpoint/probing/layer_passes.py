"""Times of layers over all forward and backward passes of an iteration; gradients may be accumulated in several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stallpoint.measure.clock import Clock, Mark
from stallpoint.measure.layer_timing import LayerTimer
from stallpoint.measure.sent import Sent
from stallpoint.networks.layers import Layer
from stallpoint.records import GATHERS


class LayerPasses:
    """Sums what a `LayerTimer` takes of each pair of passes; `ready` is called as by that."""

    def __init__(self, layers: Sequence[Layer], clock: Clock, ready: Callable[[int], None]) -> None:
        self._layers, self._clock = layers, clock
        self._timer = LayerTimer(layers, clock, ready)
        self._ended: tuple[Mark, Mark] | None = None
        self._forward: list[float] = []
        self._backward: list[float] = []
        self._ready: list[float | None] = []
        self._start_over()

    def passed(self, forward_end: Mark, backward_end: Mark) -> None:
        """A backward pass has returned; what it took is read when the device has passed the marks."""
        self._ended = forward_end, backward_end

    def settle(self) -> None:
        """Add up the passes that have ended, before the layers are called again."""
        if self._ended is None:
            return
        self._clock.wait()
        times = self._timer.times(*self._ended)
        self._ended = None
        self._forward = [sum(pair) for pair in zip(self._forward, times.forward, strict=True)]
        self._backward = [sum(pair) for pair in zip(self._backward, times.backward, strict=True)]
        self._ready = times.gradient_ready

    def forget(self) -> None:
        """Drop the marks of calls that were no training."""
        self._timer.forget()

    def columns(self, sent: Mapping[int, Sent]) -> dict[str, Sequence[Any]]:
        """Columns of `records.LAYERS` for the iteration that has ended; the next one begins."""
        self.settle()
        sendings = [sent.get(index) for index in range(len(self._layers))]
        both = zip(self._ready, sendings, strict=True)
        columns: dict[str, Sequence[Any]] = {
            "layer_index": list(range(len(self._layers))),
            "layer": [layer.name for layer in self._layers],
            "layer_type": [layer.type for layer in self._layers],
            "gradient_bytes": [layer.gradient_bytes for layer in self._layers],
            "forward": self._forward,
            "backward": self._backward,
            # Sharded parameters get theirs behind the message: what it carries is complete when it begins.
            "gradient_ready": [_earlier(ready, one.start if one else None) for ready, one in both],
            "all_reduce_start": [one and one.start for one in sendings],
            "all_reduce_end": [one and one.end for one in sendings],
            "message": [one.message if one else -1 for one in sendings],
            "message_bytes": [one.bytes if one else 0 for one in sendings],
            **dict.fromkeys(GATHERS, [None] * len(self._layers)),
        }
        self._start_over()
        return columns

    def remove(self) -> None:
        """Leave the layers as they were."""
        self._timer.remove()

    def _start_over(self) -> None:
        self._forward, self._backward = [0.0] * len(self._layers), [0.0] * len(self._layers)
        self._ready = [None] * len(self._layers)


def _earlier(first: float | None, second: float | None) -> float | None:
    """The earlier of two times; None where neither is known."""
    return min((time for time in (first, second) if time is not None), default=None)
