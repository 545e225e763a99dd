"""Layers that take a known time on a clock that only they move: times must come out exactly."""

from typing import Any

import torch
from torch import nn

from stallpoint.measure.clock import HostClock
from stallpoint.measure.layer_timing import LayerTimer
from stallpoint.networks.layers import Concat, Layer, Loss, layers


class WorkClock(HostClock):
    """Shows how much work was done, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def mark(self) -> float:
        return self.now

    def seconds(self, mark: float) -> float:
        return mark


class Take(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: torch.Tensor, weight: torch.Tensor, layer: "Work") -> torch.Tensor:
        context.layer = layer
        layer.clock.now += layer.forward_work
        return values * weight

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        context.layer.clock.now += context.layer.backward_work
        return gradient, gradient.sum(), None


class Work(nn.Module):
    """A layer with one weight that takes the given time for each pass."""

    def __init__(self, clock: WorkClock, forward_work: float, backward_work: float) -> None:
        super().__init__()
        self.clock, self.forward_work, self.backward_work = clock, forward_work, backward_work
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return Take.apply(values, self.weight, self)


class Branches(nn.Module):
    """input -> first -> in-place ReLU -> (left, left2 | right) -> join -> last"""

    def __init__(self, clock: WorkClock) -> None:
        super().__init__()
        self.first = Work(clock, 1, 10)
        self.relu = nn.ReLU(inplace=True)
        self.left = Work(clock, 2, 20)
        self.left2 = Work(clock, 3, 30)
        self.right = Work(clock, 4, 40)
        self.join = Concat()
        self.last = Work(clock, 5, 50)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = self.relu(self.first(values))
        return self.last(self.join(self.left2(self.left(values)), self.right(values))).sum()


def timed(network: nn.Module, clock: WorkClock) -> tuple[LayerTimer, list[str]]:
    """A timer on the leaves of `network`, and the names of layers as their gradients become ready."""
    leaves = [Layer(name, "work", part, list(part.parameters())) for name, part in network.named_children()]
    ready: list[str] = []
    return LayerTimer(leaves, clock, lambda index: ready.append(leaves[index].name)), ready


def test_each_layer_gets_its_own_time_across_branches_and_in_place_activations() -> None:
    clock = WorkClock()
    network = Branches(clock)
    timer, ready = timed(network, clock)
    for _ in range(2):  # nothing is carried over into the next iteration
        clock.now = 100
        ready.clear()
        loss = network(torch.ones(1, 2))
        end_of_forward = clock.mark()
        loss.backward()
        times = timer.times(end_of_forward, clock.mark())
        #                        first relu left left2 right join last
        assert times.forward == [1, 0, 2, 3, 4, 0, 5]
        assert times.backward == [10, 0, 20, 30, 40, 0, 50]
        assert ready == ["last", "right", "left2", "left", "first"]
        assert times.gradient_ready == [265, None, 255, 235, 205, None, 165]


def test_a_layer_is_ready_with_the_last_of_its_parameters() -> None:
    clock = WorkClock()
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    timer, ready = timed(network, clock)
    network(torch.ones(1, 2)).sum().backward()
    assert ready == ["1", "0"]
    assert timer.times(0.0, 0.0).gradient_ready == [0, 0]


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.norm = nn.LocalResponseNorm(3)
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(4, 4, 1)
        self.concat = Concat()
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(8 * 4 * 4, 5)
        self.loss = Loss()

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        values = self.pool(self.norm(self.relu(self.conv(images))))
        return self.loss(self.fc(self.flatten(self.concat(values, self.conv2(values)))), labels)


def test_layers_add_up_to_the_whole_pass_and_timing_leaves_the_gradients_alone() -> None:
    torch.manual_seed(1)
    network = Mixed()
    images, labels = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])
    network(images, labels).backward()
    untimed = [weights.grad.clone() for weights in network.parameters()]
    network.zero_grad()

    clock = HostClock()
    timer = LayerTimer(layers(network), clock, lambda _: None)
    clock.start()
    loss = network(images, labels)
    end_of_forward = clock.mark()
    loss.backward()
    end_of_backward = clock.mark()
    times = timer.times(end_of_forward, end_of_backward)

    assert [weights.grad.tolist() for weights in network.parameters()] == [before.tolist() for before in untimed]
    assert min(times.forward) > 0
    assert min(times.backward) > 0
    assert sum(times.forward) <= clock.seconds(end_of_forward)
    assert sum(times.backward) <= clock.seconds(end_of_backward) - clock.seconds(end_of_forward)
    ready = [time for time in times.gradient_ready if time is not None]
    assert clock.seconds(end_of_forward) < min(ready)
    assert ready == sorted(ready, reverse=True)
    assert ready[0] <= clock.seconds(end_of_backward)
