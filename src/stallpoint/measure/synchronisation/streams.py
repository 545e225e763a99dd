"""The place in which messages are worked on beside the computation: a stream of their own, where there are streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


class HostStream:
    """On a CPU what was called is done."""

    def note(self) -> None:
        """Nothing to note."""

    def wait(self, written: torch.cuda.Event | None) -> None:
        """Nothing to wait for."""

    def entered(self) -> AbstractContextManager[object]:
        """Nothing to enter."""
        return nullcontext()


class CudaStream:
    """On a CUDA device work waits in streams; messages have one of their own."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def note(self) -> torch.cuda.Event:
        """The place in the stream of the backward pass at which gradients are written."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event

    def wait(self, written: torch.cuda.Event | None) -> None:
        """Until the backward pass has come to that place."""
        if written:
            written.synchronize()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """A block whose work is done in the messages' stream, and has ended with it."""
        with torch.cuda.stream(self._stream):
            yield
        self._stream.synchronize()


def stream_for(device: torch.device) -> HostStream | CudaStream:
    """A stream beside that of the computation on `device`."""
    return CudaStream(device) if device.type == "cuda" else HostStream()
