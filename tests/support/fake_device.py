"""A device whose work takes planted times in streams of its own, over tensors in the host's memory.

It stands where PyTorch's accelerator stands (`torch.accelerator`, `torch.Stream`, `torch.Event`), so that the code for
GPUs runs on a CPU. Its time is a number: what is put into a stream begins when all before it there has ended, and all
that the stream was told to wait for; the host's own time passes only where it waits.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

CPU = torch.device("cpu")


@dataclass
class Stream:
    """Work in order."""

    of: FakeDevice
    name: str
    done: float = 0.0
    """When all that was put into it so far has ended, s."""
    device: torch.device = CPU

    def wait_event(self, event: Event) -> None:
        self.done = max(self.done, event.time)
        self.of.noted("wait_event", self.name)

    def wait_stream(self, other: Stream) -> None:
        self.done = max(self.done, other.done)
        self.of.noted("wait_stream", self.name, other.name)

    def synchronize(self) -> None:
        self.of.host_waits(self.done)
        self.of.noted("synchronize", self.name)


@dataclass
class Event:
    """A place in a stream."""

    of: FakeDevice
    enable_timing: bool
    time: float = -1.0

    def record(self) -> None:
        assert self.time < 0, "an event is recorded once"
        stream = self.of.stream
        stream.done = self.time = max(stream.done, self.of.now)
        self.of.noted("record", stream.name)

    def elapsed_time(self, end: Event) -> float:
        assert self.enable_timing
        assert end.enable_timing
        assert max(self.time, end.time) <= self.of.now, "asked for before the host has waited for it"
        return 1e3 * (end.time - self.time)


@dataclass
class FakeDevice:
    """The device; `log` has what was asked of it, with the thread that asked."""

    now: float = 0.0
    """The host's time, s."""
    log: list[tuple[str, ...]] = field(default_factory=list)
    work_log: list[tuple[str, str, float, float]] = field(default_factory=list)
    """What it did: name, stream, begin and end."""
    chosen: dict[str, torch.device] = field(default_factory=dict)
    """The device that each thread has chosen."""

    def __post_init__(self) -> None:
        self._default, self._streams = Stream(self, "default"), 0
        self._of_thread = threading.local()

    @property
    def stream(self) -> Stream:
        """The current one of this thread."""
        found: Stream = getattr(self._of_thread, "stream", self._default)
        return found

    def noted(self, *what: str) -> None:
        self.log.append((threading.current_thread().name.partition("_")[0], *what))

    def asked(self, what: str) -> list[tuple[str, ...]]:
        """Calls of `what`, in their order."""
        return [call for call in self.log if call[1] == what]

    def work(self, name: str, seconds: float) -> None:
        """Put work into the current stream."""
        stream = self.stream
        begin = max(stream.done, self.now)
        stream.done = begin + seconds
        self.work_log.append((name, stream.name, begin, stream.done))

    def host_waits(self, until: float) -> None:
        self.now = max(self.now, until)

    def _new_stream(self, device: torch.device) -> Stream:
        self._streams += 1
        self._made = [*getattr(self, "_made", []), Stream(self, f"stream {self._streams}", device=device)]
        return self._made[-1]

    def _synchronize(self, device: torch.device | None = None) -> None:
        self.host_waits(max(stream.done for stream in (self._default, *getattr(self, "_made", []))))
        self.noted("synchronize", "device")

    def _set_stream(self, stream: Stream) -> None:
        self._of_thread.stream = stream

    def _choose(self, device: torch.device) -> None:
        self.chosen[threading.current_thread().name.partition("_")[0]] = device
        self.noted("set_device")

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the accelerator's place: from now on work on a CPU waits in streams."""
        monkeypatch.setattr(torch, "Event", lambda *, enable_timing: Event(self, enable_timing))
        monkeypatch.setattr(torch, "Stream", self._new_stream)
        for name, does in {
            "synchronize": self._synchronize,
            "current_stream": lambda _device=None: self.stream,
            "set_stream": self._set_stream,
        }.items():
            monkeypatch.setattr(torch.accelerator, name, does)
        monkeypatch.setattr("stallpoint.measure.device.set_device", self._choose)
        for name, module in list(sys.modules.items()):
            if name.startswith("stallpoint.measure") and hasattr(module, "has_streams"):
                monkeypatch.setattr(module, "has_streams", lambda _device: True)


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: torch.Tensor, weight: torch.Tensor, layer: Layer) -> torch.Tensor:
        context.layer = layer
        layer.device.work(f"{layer.name} forward", layer.seconds)
        return values * weight

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        layer = context.layer
        layer.device.work(f"{layer.name} backward", 2 * layer.seconds)
        return gradient, gradient.sum().reshape(1), None


class Layer(nn.Module):
    """A layer with one weight that takes `seconds` of the device, and twice as long in its backward pass."""

    def __init__(self, device: FakeDevice, name: str, seconds: float) -> None:
        super().__init__()
        self.device, self.name, self.seconds = device, name, seconds
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return _Take.apply(values, self.weight, self)
