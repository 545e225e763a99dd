"""Layers that take a known time on a clock that only they move: times must come out exactly."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from stallpoint.errors import InputError
from stallpoint.measure.clock import HostClock
from stallpoint.measure.training.layer_timing import LayerTimer, LayerTimes
from stallpoint.networks.layers import Add, Concat, Loss, layers


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
    def forward(context: Any, values: torch.Tensor, weight: torch.Tensor, clock: WorkClock, work: float) -> Any:
        context.clock, context.work = clock, work
        context.save_for_backward(weight)  # saved tensors are what checkpointing computes again
        clock.now += work
        return values * weight

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        context.clock.now += 10 * context.work
        assert context.saved_tensors
        return gradient, gradient.sum(), None, None


class Work(nn.Module):
    """A layer with one weight that takes `work` seconds, and ten times as long in the backward pass."""

    def __init__(self, clock: WorkClock, work: float) -> None:
        super().__init__()
        self.clock, self.work = clock, work
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return Take.apply(values, self.weight, self.clock, self.work)

    def function(self, values: torch.Tensor, work: float) -> torch.Tensor:
        """The same as an operation of whoever calls it."""
        return Take.apply(values, torch.ones(()), self.clock, work)


@dataclass
class Measured:
    forward: dict[str, float]
    backward: dict[str, float]
    ready: list[str]
    times: LayerTimes


def measured(clock: WorkClock, network: nn.Module, iterations: int = 2) -> Measured:
    """Times by layer of the last of some iterations; nothing is carried over from one into the next."""
    found = layers(network)
    names = [layer.name for layer in found]
    ready: list[str] = []
    timer = LayerTimer(found, clock, lambda index: ready.append(names[index]))
    for _ in range(iterations):
        clock.now = 100.0
        ready.clear()
        loss = network(torch.ones(1, 2)).sum()
        end_of_forward = clock.mark()
        loss.backward()
        timer.check_gradients()
        timer.passed(end_of_forward, clock.mark())
        times = timer.times()
    assert sum(times.forward) == end_of_forward - 100, "the layers add up to the pass"
    assert sum(times.backward) == clock.mark() - end_of_forward, "the layers add up to the pass"
    return Measured(
        {name: time for name, time in zip(names, times.forward, strict=True) if time},
        {name: time for name, time in zip(names, times.backward, strict=True) if time},
        ready,
        times,
    )


def check_times(found: Measured, **expected: float) -> None:
    """Each layer's forward time, and ten times that in the backward pass; of the layers that took time, no other."""
    assert found.forward == expected
    assert found.backward == {name: 10 * work for name, work in expected.items()}


class Branches(nn.Module):
    """input -> first -> in-place ReLU -> (left, left2 | right) -> join -> last"""

    def __init__(self, clock: WorkClock) -> None:
        super().__init__()
        self.first = Work(clock, 1)
        self.relu = nn.ReLU(inplace=True)
        self.left = Work(clock, 2)
        self.left2 = Work(clock, 3)
        self.right = Work(clock, 4)
        self.join = Concat()
        self.last = Work(clock, 5)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = self.relu(self.first(values))
        return self.last(self.join(self.left2(self.left(values)), self.right(values)))


def test_each_layer_gets_its_own_time_across_branches_and_in_place_activations() -> None:
    found = measured(clock := WorkClock(), Branches(clock))
    check_times(found, first=1, left=2, left2=3, right=4, last=5)
    assert found.ready == ["last", "right", "left2", "left", "first"]
    #                                     first relu left left2 right join last
    assert found.times.gradient_ready == [265, None, 255, 235, 205, None, 165]


class Calls(nn.Module):
    """Two layers, an in-place ReLU and a layer without work, called as a function says."""

    def __init__(self, clock: WorkClock, how: Callable[["Calls", torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.a = Work(clock, 1)
        self.b = Work(clock, 2)
        self.relu = nn.ReLU(inplace=True)
        self.nothing = nn.Identity()
        self.add = Add()
        self.how = how

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.how(self, values)


def test_a_module_called_several_times_is_one_layer_with_the_time_of_all_calls() -> None:
    clock = WorkClock()
    found = measured(clock, Calls(clock, lambda it, x: it.a(it.b(it.a(it.b(it.a(x)))))))
    check_times(found, a=3, b=4)
    assert found.ready == ["b", "a"], "once each, with the last of their gradients"


def test_operations_between_layers_belong_to_the_layer_before_in_both_passes() -> None:
    clock = WorkClock()
    check_times(measured(clock, Calls(clock, lambda it, x: it.b(it.a.function(it.a(x), 4) * 2))), a=1 + 4, b=2)
    check_times(measured(clock, Calls(clock, lambda it, x: it.a.function(it.b(it.a(x)), 4))), a=1, b=2 + 4)


def test_layers_that_hand_on_what_they_got_take_no_time_from_others() -> None:
    clock = WorkClock()
    check_times(measured(clock, Calls(clock, lambda it, x: it.b(it.nothing(it.nothing(it.a(x)))))), a=1, b=2)
    glue = Calls(clock, lambda it, x: it.b(it.nothing(it.a.function(it.a(x), 4))))
    check_times(measured(clock, glue), a=1 + 4, b=2)


class Several(nn.Module):
    """Returns what it is told to make of two results, the newer of which nobody may use."""

    def __init__(self, clock: WorkClock, make: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.clock, self.make = clock, make

    def forward(self, values: torch.Tensor) -> Any:
        used = Take.apply(values, self.weight, self.clock, 5)
        self.kept, unused = used, used * 2
        return self.make(used, unused)


@dataclass
class Output:
    value: torch.Tensor


@pytest.mark.parametrize(
    ("make", "take"),
    [
        (lambda used, unused: (used, unused), lambda it, out: out[0]),
        (lambda used, unused: {"state": (unused, [used])}, lambda it, out: out["state"][1][0]),
        (lambda used, unused: Output(used), lambda it, out: out.value),
        (lambda used, unused: None, lambda it, out: it.kept),
    ],
    ids=["tuple", "dictionary", "dataclass", "no tensor"],
)
def test_modules_may_return_anything(make: Callable[..., Any], take: Callable[..., torch.Tensor]) -> None:
    clock = WorkClock()
    network = Calls(clock, lambda it, x: it.b(take(it.several, it.several(it.a(x)))))
    network.several = Several(clock, make)
    check_times(measured(clock, network), a=1, b=2, several=5)


class Token(nn.Module):
    """A container with a parameter of its own, and work of its own before, between and after its layers."""

    def __init__(self, clock: WorkClock) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 2))
        self.a = Work(clock, 1)
        self.blocks = nn.Sequential(Work(clock, 2), nn.Sequential())

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = self.a(self.a.function(values + self.token, 3))
        values = self.blocks(self.a.function(values, 4))
        return self.a.function(values, 5)


def test_a_container_with_parameters_is_a_layer_with_its_own_work_and_gradients() -> None:
    clock = WorkClock()
    network = nn.Sequential()
    network.first, network.inner, network.last = Work(clock, 6), Token(clock), Work(clock, 7)
    found = measured(clock, network)
    check_times(found, first=6, last=7, inner=3 + 4 + 5, **{"inner.a": 1, "inner.blocks.0": 2})
    assert found.ready == ["last", "inner.blocks.0", "inner.a", "inner", "first"]
    sizes = {layer.name: layer.gradient_bytes for layer in layers(network)}
    assert sizes == {"first": 4, "inner": 8, "inner.a": 4, "inner.blocks.0": 4, "inner.blocks.1": 0, "last": 4}
    assert layers(Token(clock))[0].name == "Token", "the network itself has no path"


def test_a_shared_parameter_belongs_to_the_first_of_its_layers_and_is_ready_after_all() -> None:
    clock = WorkClock()
    network = Calls(clock, lambda it, x: it.b(it.a(x)))
    network.b.weight = network.a.weight
    assert {layer.name: layer.gradient_bytes for layer in layers(network) if layer.parameters} == {"a": 4}
    found = measured(clock, network)
    check_times(found, a=1, b=2)
    assert found.ready == ["a"]


def test_frozen_parameters_are_nobodys_and_what_leads_to_them_has_no_backward_pass() -> None:
    clock = WorkClock()
    network = Calls(clock, lambda it, x: it.b(it.a(x)))
    network.a.weight.requires_grad_(False)
    found = measured(clock, network)
    assert (found.forward, found.backward, found.ready) == ({"a": 1, "b": 2}, {"b": 20}, ["b"])
    assert [layer.gradient_bytes for layer in layers(network)][:2] == [0, 4]


def test_a_forward_pass_done_again_belongs_to_the_backward_time_of_its_layers() -> None:
    clock = WorkClock()
    network = Calls(clock, lambda it, x: it.b(checkpoint(it.a, x, use_reentrant=False)))
    found = measured(clock, network)
    assert found.forward == {"a": 1, "b": 2}
    assert found.backward == {"a": 10 + 1, "b": 20}


def test_parameters_without_gradient_are_named() -> None:
    clock = WorkClock()
    network = Calls(clock, lambda it, x: it.a(x))
    with pytest.raises(InputError, match=r"no gradient in this iteration for b\.weight: .*requires_grad = False"):
        measured(clock, network)


def test_parameters_with_several_gradients_in_one_pass_are_named() -> None:
    clock = WorkClock()
    again = Calls(
        clock, lambda it, x: checkpoint(it.a, checkpoint(it.a, it.b(x), use_reentrant=True), use_reentrant=True)
    )
    with pytest.raises(InputError, match=r"several gradients in one backward pass for a\.weight"):
        measured(clock, again)


CALLS = ("a", "b", "nothing", "function", "residual", "checkpoint")


@given(st.lists(st.sampled_from(CALLS), max_size=12))
def test_in_any_order_of_calls_each_layer_gets_the_work_it_did(order: list[str]) -> None:
    def how(it: Calls, values: torch.Tensor) -> torch.Tensor:
        values = it.b(it.a(values))
        for name in order:
            if name == "function":
                values = it.a.function(values, 3)
            elif name == "residual":
                values = it.add(it.b(it.relu(it.a(values))), values)
            elif name == "checkpoint":
                values = checkpoint(it.b, values, use_reentrant=False)
            else:
                values = getattr(it, name)(values)
        return values

    clock = WorkClock()
    network = Calls(clock, how)
    found = measured(clock, network)
    work = {"a": 1.0, "b": 2.0}
    again, last = 0, "b"
    for name in order:
        if name == "function":
            work[last] = work.get(last, 0) + 3
        elif name == "residual":
            work["a"] += 1
            work["b"] += 2
            last = "add"
        elif name == "checkpoint":
            work["b"] += 2
            again += 2
            last = "b"
        else:
            last = name
            if name in ("a", "b"):
                work[name] += {"a": 1, "b": 2}[name]
    assert found.forward == work
    assert found.backward == {name: 10 * seconds + again * (name == "b") for name, seconds in work.items()}


def test_a_layer_is_ready_with_the_last_of_its_parameters() -> None:
    found = measured(WorkClock(), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False)))
    assert found.ready == ["1", "0"]
    assert found.times.gradient_ready == [100, 100]


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
        self.lstm = nn.LSTM(8 * 4 * 4, 6, batch_first=True)
        self.attention = nn.MultiheadAttention(6, 2)
        self.fc = nn.Linear(6, 5)
        self.loss = Loss()

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        values = self.pool(self.norm(self.relu(self.conv(images))))
        values, _ = self.lstm(self.flatten(self.concat(values, self.conv2(values))))
        return self.loss(self.fc(self.attention(values, values, values)[0]), labels)


def test_layers_add_up_to_the_whole_pass_and_timing_leaves_the_gradients_alone() -> None:
    torch.manual_seed(1)
    network = Mixed()
    images, labels = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])
    network(images, labels).backward()
    untimed = [weights.grad.clone() for weights in network.parameters()]
    network.zero_grad()

    clock = HostClock()
    found = layers(network)
    timer = LayerTimer(found, clock, lambda _: None)
    clock.start()
    loss = network(images, labels)
    end_of_forward = clock.mark()
    loss.backward()
    end_of_backward = clock.mark()
    timer.check_gradients()
    timer.passed(end_of_forward, end_of_backward)
    times = timer.times()

    assert [weights.grad.tolist() for weights in network.parameters()] == [before.tolist() for before in untimed]
    called = [index for index, layer in enumerate(found) if layer.name != "attention.out_proj"]
    assert len(called) == len(found) - 1, "nn.MultiheadAttention uses its last part's weights without calling it"
    assert min(times.forward[index] for index in called) > 0
    assert min(times.backward[index] for index in called) > 0
    assert sum(times.forward) <= clock.seconds(end_of_forward)
    assert sum(times.backward) == pytest.approx(clock.seconds(end_of_backward) - clock.seconds(end_of_forward))
    assert all(
        (time is not None) == bool(layer.parameters) for time, layer in zip(times.gradient_ready, found, strict=True)
    )
    ready = [time for time in times.gradient_ready if time is not None]
    assert clock.seconds(end_of_forward) < min(ready)
    assert max(ready) <= clock.seconds(end_of_backward)


def test_a_timer_leaves_the_layers_as_they_were() -> None:
    clock = WorkClock()
    network = Branches(clock)
    network.relu.forward = network.relu.forward  # type: ignore[method-assign]  # somebody's own
    before = [(dict(vars(module)), module.forward) for module in network.modules()]
    hooks = [parameter._post_accumulate_grad_hooks for parameter in network.parameters()]
    ready: list[int] = []
    for _ in range(2):
        timer = LayerTimer(layers(network), clock, ready.append)
        network(torch.ones(1, 2)).sum().backward()
        timer.remove()
    assert len(ready) == 2 * len(hooks)
    network(torch.ones(1, 2)).sum().backward()
    assert len(ready) == 2 * len(hooks), "nobody is told any more"
    assert [(dict(vars(module)), module.forward) for module in network.modules()] == before
    assert not any(parameter._post_accumulate_grad_hooks for parameter in network.parameters())
    assert not any(hooks)
