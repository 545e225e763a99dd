"""Streams of communication, separate from the computation's stream if the device has streams."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from stallpoint.measure.clock import Mark, event_mark, host_mark
from stallpoint.measure.device import has_streams, in_stream


class Stream(Protocol):
    """Interface of communication streams. The host need not wait: on the device, streams wait for one another."""

    def note(self) -> Mark:
        """Return a mark in the computation's stream, at which the gradients computed so far are written."""

    def entered(self) -> AbstractContextManager[object]:
        """Queue the work of the block in this stream."""

    def wait(self, written: Mark) -> None:
        """Let later work of this stream wait for the mark `written` of the computation; called inside `entered`."""

    def mark(self) -> Mark:
        """Return a mark at the end of this stream's work so far, for the device's clock; called inside `entered`."""

    def join(self) -> None:
        """Let later work of the computation wait for all work of this stream."""

    def drain(self) -> None:
        """Wait, on the host, until all work of this stream is done."""


class HostStream:
    """Stream of a CPU, whose work is done when a call returns."""

    mark = note = staticmethod(host_mark)

    def entered(self) -> AbstractContextManager[object]:
        return nullcontext()

    def wait(self, written: Mark) -> None:
        """Do nothing: gradients are already written."""

    def join(self) -> None:
        """Do nothing: all work is done."""

    def drain(self) -> None:
        """Do nothing: all work is done."""


class DeviceStream:
    """A separate stream of an accelerator."""

    mark = note = staticmethod(event_mark)

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.Stream(device)

    def entered(self) -> AbstractContextManager[object]:
        return in_stream(self._stream)

    def wait(self, written: Mark) -> None:
        self._stream.wait_event(written)

    def join(self) -> None:
        torch.accelerator.current_stream().wait_stream(self._stream)

    def drain(self) -> None:
        self._stream.synchronize()


def stream_for(device: torch.device) -> Stream:
    """Return a stream separate from that of the computation on `device`."""
    return DeviceStream(device) if has_streams(device) else HostStream()
