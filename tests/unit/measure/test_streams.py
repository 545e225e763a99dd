"""The code for GPUs on a device of planted times: the order of events, who waits for what, and which thread does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fake_device import CPU, FakeDevice, Layer
from torch import nn

from stallpoint.measure import constants
from stallpoint.measure.clock import EventClock, clock_for
from stallpoint.measure.device import in_stream
from stallpoint.measure.jobs import co_running
from stallpoint.measure.jobs.bursts import send
from stallpoint.measure.jobs.operations import Operation
from stallpoint.measure.jobs.train import Iteration, Trainer
from stallpoint.measure.synchronisation import assembly
from stallpoint.measure.training.input_pipeline import DevicePrefetch, MiniBatch
from stallpoint.measure.training.optimisers import Sgd
from stallpoint.measure.world import World
from stallpoint.strategies.presets import Preset

SECONDS = {"0": 1.0, "1": 2.0, "2": 4.0}
"""Forward passes; backward passes take twice as long."""
MESSAGE, UPDATE = 5.0, 0.5


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    found = FakeDevice()
    found.install(monkeypatch)
    return found


class Network(nn.Sequential):
    """Three layers; the loss is their output."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__(*(Layer(device, name, seconds) for name, seconds in SECONDS.items()))

    def forward(self, values: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
        return super().forward(values).sum()


@dataclass
class Sends:
    """A communicator whose messages take planted times in the stream that they are sent in."""

    device: FakeDevice
    ranks: int = 2
    rank: int = 0

    def all_reduce(self, values: torch.Tensor) -> int:
        self.device.work("message", MESSAGE)
        return values.nbytes

    def close(self) -> None:
        """Nothing to end."""


def batches() -> MiniBatch:
    return MiniBatch(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64), read=0.0, decode=0.0)


def stepped(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch, preset: Preset | None, iterations: int = 2
) -> Iterator[Iteration]:
    """Iterations of one worker, or of one of two that `preset` synchronises; the log begins anew with each."""
    world = World(None, 0, 2 if preset else 1)  # type: ignore[arg-type]
    monkeypatch.setattr(assembly, "communicator", lambda *_: Sends(device))
    plain = Sgd.step

    def step(self: Sgd, parameters: Any) -> None:
        device.work("update", UPDATE)
        plain(self, parameters)

    monkeypatch.setattr(Sgd, "step", step)
    with Trainer(Network(device), world, preset or Preset(), CPU) as trainer:
        for _ in range(iterations):
            device.log.clear()
            device.work_log.clear()
            yield trainer.step(batches)


def test_phases_and_layers_take_the_times_of_the_device(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    for iteration in stepped(device, monkeypatch, None):
        phases, layers = iteration.phases, iteration.layers
        assert [phases[name] for name in ("data_wait", "host_to_device", "exposed_communication")] == [0, 0, 0]
        assert [phases[name] for name in ("forward", "backward", "update")] == pytest.approx([7, 14, UPDATE])
        assert phases["iteration_time"] == pytest.approx(21 + UPDATE)
        assert layers["forward"] == pytest.approx([1, 2, 4])
        assert layers["backward"] == pytest.approx([2, 4, 8])
        assert layers["gradient_ready"] == pytest.approx([21, 19, 15])


@pytest.mark.parametrize("preset", [None, Preset(), Preset(start="after-backward")], ids=["alone", "wfbp", "naive"])
def test_the_host_waits_for_the_device_once_in_a_step_at_its_end(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch, preset: Preset | None
) -> None:
    for _ in stepped(device, monkeypatch, preset):
        assert device.asked("synchronize") == [("MainThread", "synchronize", "device")]
        assert device.log[-1] == ("MainThread", "synchronize", "device")


def test_messages_go_in_a_stream_of_their_own_when_their_gradients_are_ready(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    for iteration in stepped(device, monkeypatch, Preset()):
        columns = iteration.layers
        # Gradients are ready at 15, 19 and 21; a message takes 5: the second and third wait for the one before.
        assert columns["all_reduce_start"] == pytest.approx([25, 20, 15])
        assert columns["all_reduce_end"] == pytest.approx([30, 25, 20])
        assert columns["gradient_ready"] == pytest.approx([21, 19, 15])
        assert iteration.phases["backward"] == pytest.approx(14), "computing does not wait for messages"
        assert iteration.phases["exposed_communication"] == pytest.approx(30 - 21)
        assert iteration.phases["communication"] == pytest.approx(15)
        streams = {
            name: {stream for done, stream, *_ in device.work_log if done == name} for name in ("message", "update")
        }
        assert streams["update"] == {"default"}
        assert len(streams["message"]) == 1
        assert streams["message"] != streams["update"]
        (update,) = [begin for name, _, begin, _ in device.work_log if name == "update"]
        assert update == max(end for name, _, _, end in device.work_log if name == "message"), "summed before updated"


def test_messages_after_the_backward_pass_wait_for_all_of_it(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    for iteration in stepped(device, monkeypatch, Preset(start="after-backward")):
        assert iteration.layers["all_reduce_start"] == pytest.approx([31, 26, 21])
        assert iteration.phases["exposed_communication"] == pytest.approx(15)
        assert {call[0] for call in device.log} == {"MainThread"}


def test_events_are_recorded_in_the_order_of_the_work_that_they_time(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in stepped(device, monkeypatch, Preset()):
        done = [name for name, *_ in device.work_log if name not in ("message", "update")]
        assert done == ["0 forward", "1 forward", "2 forward", "2 backward", "1 backward", "0 backward"]
        waits = [call for call in device.log if call[0] == "communication" and call[1] != "set_device"]
        one = [("communication", "wait_event"), *[("communication", "record")] * 2]
        assert [call[:2] for call in waits] == 3 * one, "waits for its gradients, then begin and end"
        assert ("MainThread", "wait_stream", "default", waits[0][2]) in device.log


def test_threads_choose_their_workers_device_before_anything_else(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = []
    monkeypatch.setattr(device, "noted", lambda *what: everything.append((threading.current_thread().name, *what)))
    list(stepped(device, monkeypatch, Preset()))
    of_thread = [what for thread, *what in everything if thread.startswith("communication")]
    assert of_thread[0] == ["set_device"]
    assert len(of_thread) > 1
    assert device.chosen["communication"] == CPU


class Pinned(torch.Tensor):
    """A tensor whose copy to the device takes a second of the device."""

    of: FakeDevice

    def to(self, *_: Any, non_blocking: bool) -> torch.Tensor:  # type: ignore[override]
        assert non_blocking, "the host does not wait for a copy"
        self.of.work("copy", 1.0)
        return self.as_subclass(torch.Tensor).clone()


def test_a_batch_is_copied_ahead_in_another_stream_while_the_device_computes(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pinned(tensor: torch.Tensor) -> Pinned:
        found = tensor.clone().as_subclass(Pinned)
        found.of = device
        return found

    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    asked = threading.Semaphore(0)

    def source() -> MiniBatch:
        asked.release()
        return batches()

    device.work("computing", 10.0)
    prefetch = DevicePrefetch(source, CPU)
    batch = prefetch.next_batch()
    prefetch.close()
    assert batch.inputs.tolist() == [[1.0]]
    copies = [(stream, begin) for name, stream, begin, _ in device.work_log if name == "copy"][:2]
    assert [begin for _, begin in copies] == [0, 1], "beside what is computed, and not after it"
    assert {stream for stream, _ in copies}.isdisjoint({"default"})
    waits = device.asked("synchronize")
    assert {call[0] for call in waits} == {"device-prefetch"}, "the thread that trains never waits"
    assert {call[2] for call in waits} == {copies[0][0]}, "for its own stream alone"
    of_thread = [call for call in device.log if call[0] == "device-prefetch"]
    assert of_thread[0][1] == "set_device"


def test_a_burst_waits_for_its_own_stream_and_not_for_computing(device: FakeDevice) -> None:
    device.work("computing", 100.0)
    result = torch.ones(4)
    operation = Operation("all-reduce", 16, lambda: Sends(device).all_reduce(result), result, 2)
    send([operation] * 3)
    ended = [end for name, _, _, end in device.work_log if name == "message"]
    assert ended == [5, 10, 15]
    assert device.now == 15, "the host has waited for the messages, while the device still computes"


def test_a_piece_of_computing_waits_for_the_stream_it_is_in(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(constants.COMPUTE_IMAGES, "cpu", 1)
    compute = co_running.backward_of_convolution(CPU)
    device.work("before", 3.0)
    compute()
    assert device.asked("synchronize") == [("MainThread", "synchronize", "default")]
    assert device.now == 3


def test_times_are_read_once_the_host_has_waited(device: FakeDevice) -> None:
    clock = clock_for(CPU)
    assert isinstance(clock, EventClock)
    clock.start()
    device.work("computing", 2.0)
    mark = clock.mark()
    with pytest.raises(AssertionError, match="before the host has waited"):
        clock.seconds(mark)
    clock.wait()
    assert clock.seconds(mark) == pytest.approx(2)


def test_a_thread_leaves_a_stream_also_after_an_error(device: FakeDevice) -> None:
    stream, inside = torch.Stream(CPU), []

    def fails() -> None:
        with in_stream(stream):
            inside.append(device.stream)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert inside == [stream]
    assert device.stream.name == "default"
