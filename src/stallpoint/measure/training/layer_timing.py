"""Forward and backward time of each layer inside an ordinary training iteration, for any network.

Both passes do one thing after the other: the forward pass call by call, and the autograd engine its operations in
the reverse of their order in the forward pass (by their sequence numbers, branches included). So a mark where the
turn passes to another layer is all there is to take, and a layer's time is what lies between its mark and the next.
Whose time it is:

- *Forward*: the innermost layer being called. A leaf module has its call; a container that is a layer (it holds
  parameters of its own) has its call without those of the layers inside. Between the layers, in containers that
  are none (functional operations, glue, other hooks), time belongs to the layer that ran last.
- *Backward*: an operation belongs to the layer that had the turn when the forward pass did it. A mark is taken
  where the engine comes to the newest operations of a turn: the tensors that leave a layer, or arrive at the next
  one, lead to them. Operations that no such tensor leads to (a mask that only a later layer needs, say) count for
  the layer undone just before them. To whose turn it is belong what the engine does besides, such as accumulating
  gradients, and `gradients_ready`. A forward pass done again (activation checkpointing) is backward time of the
  layers it calls.
- Waiting for a collective in the middle of a pass, of which `waiting` is told, is nobody's.
- What comes before the first layer is nobody's. What follows the last one, up to the first mark of the backward
  pass, is the last one's: how the loss is scaled, the start of the engine.

So shared modules add up over their calls, and in-place activations and the first layer, whose input needs no
gradient, are like all others, because it is operations that are followed and not gradients of inputs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from stallpoint.errors import InputError
from stallpoint.measure.clock import Clock, Mark
from stallpoint.measure.training.sent import Gathered, Sent
from stallpoint.networks.layers import Layer

_next_number = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
"""The number that the autograd engine will give to the next operation: it undoes them from the highest down."""


@dataclass(frozen=True)
class LayerTimes:
    """One iteration's times in s, in the order of the layers."""

    forward: list[float]
    backward: list[float]
    gradient_ready: list[float | None]
    """When a layer's gradients were complete, since the start of the iteration; None where nothing is learned."""
    turns: int
    """Marks of the forward pass: one for each call of a layer, and for each return into a layer around it."""
    waits: list[tuple[float, float]]
    """When a collective was waited for in the middle of computing: begin and end, since the start of the iteration."""
    known: Mapping[str, Sequence[Any]]
    """Columns that are the same in every iteration."""

    def columns(self, sent: Mapping[int, Sent], gathered: Mapping[int, Sequence[Gathered]]) -> dict[str, Sequence[Any]]:
        """Columns of `tables.LAYERS`; gradients of layers were `sent` and weights `gathered` so."""
        count = len(self.forward)
        sendings = [sent.get(index) for index in range(count)]
        ready_and_sent = zip(self.gradient_ready, sendings, strict=True)
        gathers = [
            [
                next((one for one in reversed(gathered.get(index, ())) if one.backward == again), None)
                for index in range(count if gathered else 0)
            ]
            or [None] * count
            for again in (False, True)
        ]
        return {
            **self.known,
            "forward": self.forward,
            "backward": self.backward,
            # Sharded parameters get theirs behind the message: what it carries is complete when it begins.
            "gradient_ready": [_earlier(ready, one.start if one else None) for ready, one in ready_and_sent],
            "all_reduce_start": [one and one.start for one in sendings],
            "all_reduce_end": [one and one.end for one in sendings],
            "message": [one.message if one else -1 for one in sendings],
            "message_bytes": [one.bytes if one else 0 for one in sendings],
            "gather_start": [one and one.start for one in gathers[0]],
            "gather_end": [one and one.end for one in gathers[0]],
            "gather_again_start": [one and one.start for one in gathers[1]],
            "gather_again_end": [one and one.end for one in gathers[1]],
        }


@dataclass(frozen=True)
class _Pass:
    """A forward and a backward pass that have ended."""

    turns: list[int]
    marks: list[Mark]
    forward: Mark
    backward: Mark


class LayerTimer:
    """Takes the marks, in calls and operations of the layers, which it changes until `remove` is called.

    `gradients_ready` is called, in the middle of the backward pass, with the position of each layer whose
    gradients have just been completed. `whole` are the layers as records describe them, where a worker has a share.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        clock: Clock,
        gradients_ready: Callable[[int], None],
        whole: Sequence[Layer] | None = None,
    ) -> None:
        self._layers = layers
        self._known: dict[str, Sequence[Any]] = {
            "layer_index": list(range(len(layers))),
            "layer": [layer.name for layer in layers],
            "layer_type": [layer.type for layer in layers],
            "gradient_bytes": [layer.gradient_bytes for layer in whole or layers],
        }
        self._clock = clock
        self._gradients_ready = gradients_ready
        # Two lists, of numbers alone: tuples would wake the garbage collector in the middle of the pass.
        self._turns: list[int] = []
        self._marks: list[Mark] = []
        self._running: int | None = None
        self._followed = 0
        """Number of the first operation whose turn is not settled."""
        self._undone = [self._hook_holder(index) for index in range(len(layers) + 1)]
        self._ready: list[tuple[int, Mark]] = []
        self._parameters: list[str] = []
        self._accumulated: list[int] = []
        self._passes: list[_Pass] = []
        self._waits: list[tuple[Mark, Mark]] = []
        self._waiting: tuple[int | None, Mark] = (None, None)
        self._stay = False
        """Whether gradients stay on their ranks, for later passes to add to."""
        self._undo: list[Callable[[], None]] = []
        for index, layer in enumerate(layers):
            self._follow_calls(index, layer.module)
            self._follow_gradients(index, layer)

    def check_gradients(self) -> None:
        """After a backward pass: raise `InputError` unless each parameter got its gradient, once.

        Otherwise ranks would wait for one another without end, or sum what is not complete.
        """
        accumulated = self._accumulated
        if len(accumulated) == len(set(accumulated)) == len(self._parameters):
            return
        if missing := [name for place, name in enumerate(self._parameters) if place not in set(accumulated)]:
            raise InputError(
                f"no gradient in this iteration for {_some(missing)}: the loss must depend on every parameter, as all "
                "ranks wait for all gradients; freeze what is not to be learned (requires_grad = False)"
            )
        twice = [name for place, name in enumerate(self._parameters) if accumulated.count(place) > 1]
        raise InputError(
            f"several gradients in one backward pass for {_some(twice)}: each must be accumulated once (of PyTorch's "
            "activation checkpointing use the variant use_reentrant=False)"
        )

    def forget(self) -> None:
        """Drop the marks of forward passes that were no iteration's, since the last pass that was."""
        for taken in (self._turns, self._marks, self._ready, self._accumulated, self._waits):
            taken.clear()

    def remove(self) -> None:
        """Leave the layers as they were."""
        while self._undo:
            self._undo.pop()()

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """A block of passes whose gradients stay on their ranks: nobody is told that they are ready."""
        self._stay = True
        yield
        self._stay = False

    def waiting(self, begins: bool) -> None:
        """A wait begins, or ends. Outside of passes it is noted alone."""
        now = self._clock.mark()
        if begins:
            turn = self._turns[-1] if self._turns else None
            self._waiting = turn, now
        else:
            turn, since = self._waiting
            self._waits.append((since, now))
        if turn is not None:
            self._turns.append(len(self._layers) if begins else turn)
            self._marks.append(now)

    def passed(self, end_of_forward: Mark, end_of_backward: Mark) -> None:
        """A forward and a backward pass of the iteration have ended."""
        self._passes.append(_Pass(self._turns.copy(), self._marks.copy(), end_of_forward, end_of_backward))
        self._turns.clear()
        self._marks.clear()

    def times(self) -> LayerTimes:
        """Times of all passes of the iteration that has ended; the timer is then ready for the next one."""
        seconds, count = self._clock.seconds, len(self._layers)
        forward, backward, turns = [0.0] * count, [0.0] * count, 0
        for one in self._passes:
            marks, middle = [*map(seconds, one.marks)], seconds(one.forward)
            before = bisect_left(marks, middle)
            last = one.turns[before - 1] if before else count  # its turn goes on behind the forward pass
            self._add(forward, one.turns[:before], [*marks[:before], middle])
            self._add(backward, [last, *one.turns[before:]], [middle, *marks[before:], seconds(one.backward)])
            turns += before
        times = LayerTimes(
            forward, backward, [None] * count, turns, [(seconds(begin), seconds(end)) for begin, end in self._waits],
            self._known,
        )  # fmt: skip
        for index, mark in self._ready:
            times.gradient_ready[index] = seconds(mark)
        self._passes.clear()
        self.forget()
        return times

    def _add(self, sums: list[float], turns: Sequence[int], marks: Sequence[float]) -> None:
        """Add to the seconds of each layer those of its turns, each from its mark to the next."""
        for turn, (begin, end) in zip(turns, pairwise(marks), strict=True):
            if turn < len(sums):  # else it is nobody's
                sums[turn] += end - begin

    def _follow_calls(self, index: int, module: nn.Module) -> None:
        """Mark where calls of `module` begin and, inside another layer, end.

        Around ``forward`` and not by the module's hooks, which cost twice as much.
        """
        forward, undone = module.forward, self._undone[index]
        take_turn, take_mark, now = self._turns.append, self._marks.append, self._clock.mark

        def timed(*inputs: Any, **named: Any) -> Any:
            outer, self._running = self._running, index
            if _next_number() != self._followed:
                self._follow_operations((inputs, named))
            take_turn(index)
            take_mark(now())
            try:
                outputs = forward(*inputs, **named)
            finally:  # checkpointing stops a forward pass done again in its middle, by an exception
                self._running = outer
            if isinstance(outputs, torch.Tensor):  # in short what `_follow_operations` does
                operation = outputs.grad_fn
                if operation is not None and (number := operation._sequence_nr()) >= self._followed:
                    operation._register_hook_dict(undone)
                    self._followed = number + 1
            else:
                self._follow_operations(outputs)
            if outer is not None:
                take_turn(outer)
                take_mark(now())
            return outputs

        replaced = "forward" in vars(module)  # somebody put another one on this module than its class has
        module.forward = timed
        self._undo.append(lambda: setattr(module, "forward", forward) if replaced else delattr(module, "forward"))

    def _follow_operations(self, values: object) -> None:
        """See to a mark where the newest operations, found from the tensors in `values`, begin to be undone."""
        if not self._turns:
            self._followed = _next_number()
            return
        first, undone = self._followed, self._undone[self._turns[-1]]
        for tensor in _tensors(values):
            # Of the operation, not the tensor: an in-place ReLU gives the tensor another one.
            operation = tensor.grad_fn
            if operation is not None and operation._sequence_nr() >= first:
                operation._register_hook_dict(undone)
                self._followed = _next_number()

    def _hook_holder(self, index: int) -> torch.Tensor:
        """A tensor whose hook marks that operations of the layer begin to be undone.

        Operations borrow the hook. ``register_prehook`` does the same, but makes a handle to remove
        each hook again, which takes as long as all the rest of the timing.
        """
        take_turn, take_mark, now = self._turns.append, self._marks.append, self._clock.mark

        def before_undone(_gradient: object) -> None:
            take_turn(index)
            take_mark(now())

        holder = torch.empty(0)
        holder._backward_hooks = {0: before_undone}
        return holder

    def _follow_gradients(self, index: int, layer: Layer) -> None:
        """Tell when the last of a layer's parameters has its gradient."""
        missing = len(layer.parameters)
        take_note, take_mark = self._accumulated.append, self._clock.mark
        names = {id(parameter): name for name, parameter in layer.module.named_parameters(recurse=False)}

        def follow(parameter: nn.Parameter) -> None:
            place = len(self._parameters)
            self._parameters.append(f"{layer.name}.{names[id(parameter)]}")

            def accumulated(_parameter: torch.Tensor) -> None:
                nonlocal missing
                if self._stay:
                    return
                take_note(place)
                missing -= 1
                if not missing:
                    missing = len(layer.parameters)
                    self._ready.append((index, take_mark()))
                    self._gradients_ready(index)

            handle = parameter.register_post_accumulate_grad_hook(accumulated)  # type: ignore[no-untyped-call]
            self._undo.append(handle.remove)

        for parameter in layer.parameters:
            follow(parameter)


def _earlier(first: float | None, second: float | None) -> float | None:
    """The earlier of two times; None where neither is known."""
    return min((time for time in (first, second) if time is not None), default=None)


def _tensors(values: object) -> Iterator[torch.Tensor]:
    """All tensors in whatever a module takes or returns."""
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


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
