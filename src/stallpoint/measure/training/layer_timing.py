"""Forward and backward time of each layer inside an ordinary training iteration, for any network.

Both passes are sequential: the forward pass call by call; in the backward pass the autograd engine runs operations in
the reverse order of the forward pass (by their sequence numbers, branches included). So a mark is taken wherever
computation passes to another layer, and a layer's time is the sum of the intervals that begin at its marks. Each
interval has an owner:

- *Forward*: the innermost layer being called. A leaf module owns its call; a container that is a layer (it holds
  parameters of its own) owns its call without the calls of layers inside. Between layers, in containers that are no
  layer (functional operations, glue, other hooks), time belongs to the layer that ran last.
- *Backward*: an operation belongs to the layer that owned the forward pass when the operation was done. A mark is taken
  where the engine comes to the newest operations of an interval, which are found from the tensors that leave a layer or
  arrive at the next one. Operations that no such tensor leads to (a mask that only a later layer needs, say) count for
  the owner at that moment, which also owns other work of the engine, such as accumulating gradients, and
  `gradients_ready`. A forward pass done again (activation checkpointing) is backward time of the layers that it calls.
- Waiting for a collective within a pass, reported to `waiting`, has no owner.
- Time before the first layer has no owner. Time after the last layer, up to the first mark of the backward pass
  (scaling of the loss, start of the engine), belongs to the last layer.

So the time of a module that is called several times is the sum over its calls. The timer follows operations, not
gradients of inputs: so in-place activations need no special treatment, nor does a first layer without input gradient.

Each training job also measures the cost of timing layers, and whether the layers' times add up to a pass's time.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import cache
from itertools import chain, pairwise
from typing import Any

import torch
from torch import nn

from stallpoint.errors import InputError
from stallpoint.measure import constants
from stallpoint.measure.clock import IterationClock, Mark, clock_for, host_mark
from stallpoint.measure.training.transfers import Gathered, Transfer
from stallpoint.networks.layers import Layer, layers

_next_number = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
"""Number that autograd gives to the next operation; the backward pass goes from the highest number to the lowest."""


@dataclass(frozen=True)
class LayerTimes:
    """Times of one iteration, s; lists are in the order of the layers."""

    forward: list[float]
    backward: list[float]
    gradient_ready: list[float | None]
    """Time when a layer's gradients were complete, since the start of the iteration; None without parameters."""
    marks: int
    """Number of marks in forward passes: one for each call of a layer, and for each return into a layer around it."""
    waits: list[tuple[float, float]]
    """Begin and end of each wait for a collective within computing, since the start of the iteration."""
    known: Mapping[str, Sequence[Any]]
    """Columns of `tables.LAYERS` that are equal in all iterations."""

    def columns(
        self, transfers: Mapping[int, Transfer], gathered: Mapping[int, Sequence[Gathered]]
    ) -> dict[str, Sequence[Any]]:
        """Return columns of `tables.LAYERS`, with the `transfers` of gradients and the all-gathers of weights."""
        count = len(self.forward)
        found = [transfers.get(index) for index in range(count)]
        ready_and_transfer = zip(self.gradient_ready, found, strict=True)
        gathers = [
            [
                next((one for one in reversed(gathered.get(index, ())) if one.backward == is_backward), None)
                for index in range(count if gathered else 0)
            ]
            or [None] * count
            for is_backward in (False, True)
        ]
        return {
            **self.known,
            "forward": self.forward,
            "backward": self.backward,
            # FSDP2 sets gradients after the reduce-scatter. They were complete at its start, which is earlier.
            "gradient_ready": [_earlier(ready, one.start if one else None) for ready, one in ready_and_transfer],
            "all_reduce_start": [one and one.start for one in found],
            "all_reduce_end": [one and one.end for one in found],
            "bucket": [one.bucket if one else -1 for one in found],
            "bucket_bytes": [one.bytes if one else 0 for one in found],
            "gather_start": [one and one.start for one in gathers[0]],
            "gather_end": [one and one.end for one in gathers[0]],
            "gather_again_start": [one and one.start for one in gathers[1]],
            "gather_again_end": [one and one.end for one in gathers[1]],
        }


@dataclass(frozen=True)
class _TimedPass:
    owners: list[int]
    marks: list[Mark]
    forward: Mark
    backward: Mark


class LayerTimer:
    """Timer of layers, whose calls and operations are instrumented until `remove`.

    `gradients_ready` is called within the backward pass, with the position of a layer, when the layer's gradients are
    complete. Layers `full`, which are unsharded, give the sizes of gradients if `layers` are sharded.
    """

    timed = True
    """Whether the present iteration's layers are timed; `gradients_ready` is called even if not."""

    def __init__(
        self,
        layers: Sequence[Layer],
        clock: IterationClock,
        gradients_ready: Callable[[int], None],
        full: Sequence[Layer] | None = None,
    ) -> None:
        self._layers = layers
        self._known: dict[str, Sequence[Any]] = {
            "layer_index": list(range(len(layers))),
            "layer": [layer.name for layer in layers],
            "layer_type": [layer.type for layer in layers],
            "gradient_bytes": [layer.gradient_bytes for layer in full or layers],
        }
        self._clock = clock
        self._gradients_ready = gradients_ready
        # Two lists: one list of tuples (owner, mark) would start the garbage collector within a pass.
        self._owners: list[int] = []
        self._marks: list[Mark] = []
        self._running: int | None = None
        self._followed = 0
        """Number of the first operation that has no owner yet."""
        self._hook_holders = [self._hook_holder(index) for index in range(len(layers) + 1)]
        self._ready: list[tuple[int, Mark]] = []
        self._parameters: list[str] = []
        self._accumulated: list[int] = []
        self._passes: list[_TimedPass] = []
        self._waits: list[tuple[Mark, Mark]] = []
        self._waiting: tuple[int | None, Mark] = (None, None)
        self._stay = False
        """Whether gradients stay on their ranks, as later passes add to them."""
        self._undo: list[Callable[[], None]] = []
        for index, layer in enumerate(layers):
            self._follow_calls(index, layer.module)
            self._follow_gradients(index, layer)

    def check_gradients(self) -> None:
        """Raise `InputError` unless each parameter got its gradient exactly once in the backward pass.

        Without this check, ranks would wait for one another forever, or sum incomplete gradients.
        """
        accumulated = self._accumulated
        if len(accumulated) == len(set(accumulated)) == len(self._parameters):
            return
        if missing := [name for index, name in enumerate(self._parameters) if index not in set(accumulated)]:
            raise InputError(
                f"no gradient in this iteration for {_some(missing)}: the loss must depend on every parameter, as all "
                "ranks wait for all gradients; freeze what is not to be learned (requires_grad = False)"
            )
        twice = [name for index, name in enumerate(self._parameters) if accumulated.count(index) > 1]
        raise InputError(
            f"several gradients in one backward pass for {_some(twice)}: each must be accumulated once (of PyTorch's "
            "activation checkpointing use the variant use_reentrant=False)"
        )

    def forget(self) -> None:
        """Drop the marks since the last `passed`, such as those of an evaluation."""
        for marks in (self._owners, self._marks, self._ready, self._accumulated, self._waits):
            marks.clear()

    def remove(self) -> None:
        """Remove all instrumentation from the layers."""
        while self._undo:
            self._undo.pop()()

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Within the block, gradients stay on their ranks: `gradients_ready` is not called."""
        self._stay = True
        yield
        self._stay = False

    def waiting(self, begins: bool) -> None:
        """Note the begin or end of a wait for a collective, which interrupts the time of the current layer."""
        now = self._clock.mark()
        if begins:
            owner = self._owners[-1] if self._owners else None
            self._waiting = owner, now
        else:
            owner, since = self._waiting
            self._waits.append((since, now))
        if owner is not None:
            self._owners.append(len(self._layers) if begins else owner)
            self._marks.append(now)

    def passed(self, end_of_forward: Mark, end_of_backward: Mark) -> None:
        """Note that a forward pass of the iteration, and its backward pass, have ended."""
        if not self.timed:
            return
        self._passes.append(_TimedPass(self._owners.copy(), self._marks.copy(), end_of_forward, end_of_backward))
        self._owners.clear()
        self._marks.clear()

    def times(self) -> LayerTimes:
        """Return the times of all passes of the ended iteration, and prepare for the next iteration."""
        seconds, count = self._clock.seconds, len(self._layers)
        forward, backward, count_marks = [0.0] * count, [0.0] * count, 0
        for one in self._passes:
            marks, forward_end = [*map(seconds, one.marks)], seconds(one.forward)
            before = bisect_left(marks, forward_end)
            last = one.owners[before - 1] if before else count  # the last layer owns the time after the forward pass
            self._add(forward, one.owners[:before], [*marks[:before], forward_end])
            self._add(backward, [last, *one.owners[before:]], [forward_end, *marks[before:], seconds(one.backward)])
            count_marks += before
        times = LayerTimes(
            forward, backward, [None] * count, count_marks,
            [(seconds(begin), seconds(end)) for begin, end in self._waits], self._known,
        )  # fmt: skip
        for index, mark in self._ready:
            times.gradient_ready[index] = seconds(mark)
        self._passes.clear()
        self.forget()
        return times

    def _add(self, sums: list[float], owners: Sequence[int], marks: Sequence[float]) -> None:
        """Add to each layer's seconds the time from each of its marks to the next mark."""
        for owner, (begin, end) in zip(owners, pairwise(marks), strict=True):
            if owner < len(sums):  # time without an owner has the number of layers as `owner`
                sums[owner] += end - begin

    def _follow_calls(self, index: int, module: nn.Module) -> None:
        """Mark where calls of `module` begin and, inside another layer, end.

        Calls of ``forward`` are wrapped, as the module's forward hooks would cost twice as much.
        """
        forward, hook_holder = module.forward, self._hook_holders[index]
        add_owner, add_mark, now = self._owners.append, self._marks.append, self._clock.mark

        def timed(*inputs: Any, **named: Any) -> Any:
            if not self.timed:
                return forward(*inputs, **named)
            outer, self._running = self._running, index
            if _next_number() != self._followed:
                self._follow_operations((inputs, named))
            add_owner(index)
            add_mark(now())
            try:
                outputs = forward(*inputs, **named)
            finally:  # activation checkpointing ends a repeated forward pass by an exception
                self._running = outer
            if isinstance(outputs, torch.Tensor):  # a faster `_follow_operations`, for a single tensor
                operation = outputs.grad_fn
                if operation is not None and (number := operation._sequence_nr()) >= self._followed:
                    operation._register_hook_dict(hook_holder)
                    self._followed = number + 1
            else:
                self._follow_operations(outputs)
            if outer is not None:
                add_owner(outer)
                add_mark(now())
            return outputs

        replaced = "forward" in vars(module)  # if so, `remove` sets this `forward` again; else it uncovers the class's
        module.forward = timed
        self._undo.append(lambda: setattr(module, "forward", forward) if replaced else delattr(module, "forward"))

    def _follow_operations(self, values: object) -> None:
        """Let the backward pass take a mark when it comes to the newest operations, which made tensors in `values`."""
        if not self._owners:
            self._followed = _next_number()
            return
        first, hook_holder = self._followed, self._hook_holders[self._owners[-1]]
        for tensor in _tensors(values):
            # The hook is set on the operation, not on the tensor: an in-place ReLU changes the tensor's operation.
            operation = tensor.grad_fn
            if operation is not None and operation._sequence_nr() >= first:
                operation._register_hook_dict(hook_holder)
                self._followed = _next_number()

    def _hook_holder(self, index: int) -> torch.Tensor:
        """Return a tensor with a hook that takes a mark of the layer `index`.

        Operations borrow this hook: their own ``register_prehook`` takes as long as all other timing together.
        """
        add_owner, add_mark, now = self._owners.append, self._marks.append, self._clock.mark

        def before_undone(_gradient: object) -> None:
            add_owner(index)
            add_mark(now())

        holder = torch.empty(0)
        holder._backward_hooks = {0: before_undone}
        return holder

    def _follow_gradients(self, index: int, layer: Layer) -> None:
        """Call `gradients_ready` when the last of a layer's parameters has its gradient."""
        missing = len(layer.parameters)
        add_number, take_mark = self._accumulated.append, self._clock.mark
        names = {id(parameter): name for name, parameter in layer.module.named_parameters(recurse=False)}

        def follow(parameter: nn.Parameter) -> None:
            number = len(self._parameters)
            self._parameters.append(f"{layer.name}.{names[id(parameter)]}")

            def accumulated(_parameter: torch.Tensor) -> None:
                nonlocal missing
                if self._stay:
                    return
                if self.timed:
                    add_number(number)
                missing -= 1
                if not missing:
                    missing = len(layer.parameters)
                    if self.timed:
                        self._ready.append((index, take_mark()))
                    self._gradients_ready(index)

            handle = parameter.register_post_accumulate_grad_hook(accumulated)  # type: ignore[no-untyped-call]
            self._undo.append(handle.remove)

        for parameter in layer.parameters:
            follow(parameter)


def _earlier(first: float | None, second: float | None) -> float | None:
    """Return the earlier of two times. If one is None, return the other; if both are None, return None."""
    return min((time for time in (first, second) if time is not None), default=None)


def _tensors(values: object) -> Iterator[torch.Tensor]:
    """Yield all tensors in the arguments or results of a module."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from _tensors(value)
    elif isinstance(values, list | tuple | set):
        for value in values:
            yield from _tensors(value)
    elif is_dataclass(values) and not isinstance(values, type):
        yield from _tensors(vars(values))


def _some(names: Sequence[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


@dataclass(frozen=True)
class PassTimes:
    """Times of one forward and backward pass, s."""

    seconds: float
    seconds_read: float
    """`seconds`, and the time to read the layers' times after the passes."""
    forward_closure: float
    """Ratio of the sum of the layers' times to the time of the pass; 0 without timing."""
    backward_closure: float


class Pass:
    """Forward and backward pass of a network. With `timed`, the layers are timed."""

    def __init__(
        self, network: nn.Module, inputs: Sequence[torch.Tensor], device: torch.device, *, timed: bool
    ) -> None:
        self.network = network.to(device)
        self._inputs = [values.to(device) for values in inputs]
        self._clock = clock_for(device)
        self._timer = LayerTimer(layers(network), self._clock, lambda _: None) if timed else None

    def run(self) -> PassTimes:
        """Do both passes once, as in an iteration, and return their times."""
        mark, seconds = self._clock.mark, self._clock.seconds
        begin = host_mark()
        self._clock.start()
        loss = self.network(*self._inputs).sum()
        forward = mark()
        loss.backward()
        backward = mark()
        self._clock.wait()
        end = host_mark()
        closures = [0.0, 0.0]
        if self._timer:
            self._timer.passed(forward, backward)
            times = self._timer.times()
            ends = seconds(forward), seconds(backward)
            closures = [sum(times.forward) / ends[0], sum(times.backward) / (ends[1] - ends[0])]
        return PassTimes((end - begin) * 1e-9, (host_mark() - begin) * 1e-9, *closures)


def tiny_pass(device: torch.device, *, timed: bool) -> Pass:
    """Return a pass of `TINY_LAYERS` layers that compute next to nothing; half of them have parameters."""
    pairs = ((nn.Linear(4, 4), nn.ReLU()) for _ in range(constants.TINY_LAYERS // 2))
    return Pass(nn.Sequential(*chain.from_iterable(pairs)), [torch.ones(1, 4)], device, timed=timed)


@cache
def timing_cost(device: torch.device) -> float:
    """Return the time that timing adds to each call of a layer, s: the median over pairs of passes, measured once."""
    untimed, timed = tiny_pass(device, timed=False), tiny_pass(device, timed=True)
    pairs = [(untimed.run().seconds, timed.run().seconds) for _ in range(1 + constants.PAIRS)][1:]
    return statistics.median(with_timing - without for without, with_timing in pairs) / constants.TINY_LAYERS


class Instrumentation:
    """Collector of evidence that a job's times of layers are accurate: their sums, and the cost of timing."""

    def __init__(self) -> None:
        self._closures: dict[str, list[float]] = {"forward": [], "backward": []}
        self._marks: list[int] = []
        self._iteration_times: list[float] = []
        self._layers = 0

    def add(self, phases: Mapping[str, float], of_layers: Mapping[str, Sequence[Any]], marks: int) -> None:
        """Add an iteration by its columns of `tables.ITERATIONS` and of `tables.LAYERS`, and its number of `marks`."""
        for phase, closures in self._closures.items():
            closures.append(sum(of_layers[phase]) / phases[phase])
        self._marks.append(marks)
        self._iteration_times.append(phases["iteration_time"])
        self._layers = len(of_layers["layer"])

    def row(self, device: torch.device) -> dict[str, object]:
        """Measure the cost of timing, and return the row of `tables.INSTRUMENTATION`."""
        cost, marks = timing_cost(device), statistics.median_high(self._marks)
        return {
            "layers": self._layers,
            "marks": marks,
            "timing_cost": cost,
            "timing_share": cost * marks / statistics.median(self._iteration_times),
            **{f"{phase}_closure": statistics.median(closures) for phase, closures in self._closures.items()},
        }
