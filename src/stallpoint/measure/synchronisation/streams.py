"""The place in which messages are worked on beside the computation: a stream of their own, where there are streams."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from stallpoint.measure.clock import Mark, event_mark, host_mark
from stallpoint.measure.device import has_streams, in_stream


class Stream(Protocol):
    """Work that waits for the computation, and for which the computation waits; the host waits for neither."""

    def note(self) -> Mark:
        """The place in the computation's order of work at which gradients are written."""

    def entered(self) -> AbstractContextManager[object]:
        """A block whose work is done here."""

    def wait(self, written: Mark) -> None:
        """Inside `entered`: what follows is done after that place."""

    def mark(self) -> Mark:
        """Inside `entered`: when the work so far is done; for the `seconds` of the device's clock."""

    def join(self) -> None:
        """What the computation does from now on is done after all the work here."""

    def drain(self) -> None:
        """Until all the work here is done: here the host waits."""


class HostStream:
    """On a CPU what was called is done."""

    mark = note = staticmethod(host_mark)

    def entered(self) -> AbstractContextManager[object]:
        """See `Stream`."""
        return nullcontext()

    def wait(self, written: Mark) -> None:
        """It is written."""

    def join(self) -> None:
        """It is done."""

    def drain(self) -> None:
        """It is done."""


class DeviceStream:
    """On an accelerator work waits in streams; messages have one of their own."""

    mark = note = staticmethod(event_mark)

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.Stream(device)

    def entered(self) -> AbstractContextManager[object]:
        """See `Stream`."""
        return in_stream(self._stream)

    def wait(self, written: Mark) -> None:
        """See `Stream`."""
        self._stream.wait_event(written)

    def join(self) -> None:
        """See `Stream`."""
        torch.accelerator.current_stream().wait_stream(self._stream)

    def drain(self) -> None:
        """See `Stream`."""
        self._stream.synchronize()


def stream_for(device: torch.device) -> Stream:
    """A stream beside that of the computation on `device`."""
    return DeviceStream(device) if has_streams(device) else HostStream()
