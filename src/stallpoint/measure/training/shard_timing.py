"""Times at which the collectives of FSDP2 (`fully_shard`) start and end, noted by its hooks for custom collectives.

A group consists of the modules sharded by one call of `fully_shard`. An all-gather gathers the group's weights. A
reduce-scatter sums the gradients of the group's layers, which are one bucket. On a CPU a rank waits for a collective in
the call; if the collective is asynchronous, it waits later, where the result is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as fsdp
from typing_extensions import override

from stallpoint.measure.clock import Mark
from stallpoint.measure.training.transfers import Gathered, Transfer
from stallpoint.networks.layers import Layer

Seconds = Callable[[Mark], float]


@dataclass
class _Collective:
    """A timed collective; `end` is None while it is under way."""

    group: int
    bytes: int
    """Bytes of this rank's input."""
    backward: bool
    """Whether the collective was called in a backward pass."""
    start: Mark
    end: Mark = None


class ShardTiming:
    """Timer of the collectives of a `network` that is sharded by `fully_shard`.

    `waiting` is called when a wait for a collective within computing begins and ends. With `asynchronous`, all-gathers
    are asynchronous; with `summed`, reduce-scatters sum gradients. Else FSDP2's own settings apply.
    """

    def __init__(
        self,
        network: nn.Module,
        layers: Sequence[Layer],
        mark: Callable[[], Mark],
        waiting: Callable[[bool], None],
        device: torch.device,
        *,
        asynchronous: bool = False,
        summed: bool = False,
    ) -> None:
        self._mark, self.asynchronous, self.summed = mark, asynchronous, summed
        self._has_streams = device.type != "cpu"
        self.timed = True
        """Whether collectives are timed; set to False at the end, as modules keep their hooks."""
        self._waiting = waiting
        groups = [module for module in network.modules() if isinstance(module, FSDPModule)]
        group_of: dict[int, int] = {}  # the innermost group of each module; keys are the modules' ids
        for group, module in enumerate(groups):  # an inner group comes after its outer group, and replaces it
            group_of.update({id(inside): group for inside in cast(nn.Module, module).modules()})
        self._groups: list[list[int]] = [[] for _ in groups]
        for index, layer in enumerate(layers):
            if layer.parameters and id(layer.module) in group_of:
                self._groups[group_of[id(layer.module)]].append(index)
        self._bytes = [layer.gradient_bytes for layer in layers]
        self._gathers: list[_Collective] = []
        self._reduces: list[_Collective] = []
        self._futures: list[torch.futures.Future[Any]] = []
        for group, module in enumerate(groups):
            module.set_custom_all_gather(_AllGather(self, group))
            module.set_custom_reduce_scatter(_ReduceScatter(self, group))

    def transfers(self, seconds: Seconds) -> Mapping[int, Transfer]:
        """Return by layer the transfer of its gradients since the last `clear`; of several transfers, the last."""
        found: dict[int, Transfer] = {}
        for number, message in enumerate(self._reduces):
            start, end, layers = seconds(message.start), seconds(message.end), self._groups[message.group]
            total = sum(self._bytes[layer] for layer in layers) or 1
            for layer in layers:
                found[layer] = Transfer(number, round(message.bytes * self._bytes[layer] / total), start, end)
        return found

    def gathered(self, seconds: Seconds) -> Mapping[int, Sequence[Gathered]]:
        """Return by layer all all-gathers of its weights since the last `clear`."""
        found: dict[int, list[Gathered]] = {}
        for one in self._gathers:
            gather = Gathered(one.backward, seconds(one.start), seconds(one.end))
            for layer in self._groups[one.group]:
                found.setdefault(layer, []).append(gather)
        return found

    def under_way(self, seconds: Seconds) -> list[tuple[float, float]]:
        """Return start and end of all collectives since the last `clear`, s."""
        return [(seconds(one.start), seconds(one.end)) for one in (*self._gathers, *self._reduces)]

    @property
    def last_message(self) -> Mark:
        """Return the start of the last bucket since the last `clear`; None without a bucket."""
        return self._reduces[-1].start if self._reduces else None

    def settle(self) -> None:
        """Wait until all collectives have ended, so that their times can be read."""
        for future in self._futures:
            future.wait()

    def clear(self) -> None:
        for collectives in (self._gathers, self._reduces, self._futures):
            collectives.clear()

    def gather(
        self, group: int, input_: torch.Tensor, call: Callable[[], dist.Work | None], *, overlap: bool
    ) -> dist.Work | None:
        """Do and time an all-gather of this rank's `input_` by `call`. With `overlap`, it returns before its end."""
        if not self.timed:
            return call()
        with self._blocking(overlap=overlap):
            collective = self._begin(self._gathers, group, input_)
            work = call()
            if not overlap or work is None:
                collective.end = self._mark()
                return work

        def ended(_: torch.futures.Future[Any]) -> None:
            collective.end = self._mark()

        self._futures.append(work.get_future().then(ended))
        return _Waited(work, self._waiting)

    def reduce(self, group: int, input_: torch.Tensor, call: Callable[[], dist.Work | None]) -> dist.Work | None:
        """Do and time a reduce-scatter of this rank's `input_` by `call`."""
        if not self.timed:
            return call()
        with self._blocking():
            collective = self._begin(self._reduces, group, input_)
            work = call()
            collective.end = self._mark()
        return work

    def extend_last_bucket(self, call: Callable[[], object]) -> None:
        """Run `call`, and count its time for the last bucket, which ends when `call` ends."""
        with self._blocking():
            call()
            self._reduces[-1].end = self._mark()

    @contextmanager
    def _blocking(self, *, overlap: bool = False) -> Iterator[None]:
        """Mark a block as a wait of the computing thread; with `overlap` or on a device with streams, nothing waits."""
        waits = not (overlap or self._has_streams)
        if waits:
            self._waiting(True)
        yield
        if waits:
            self._waiting(False)

    def _begin(self, collectives: list[_Collective], group: int, input_: torch.Tensor) -> _Collective:
        in_backward = torch._C._current_graph_task_id() >= 0
        collectives.append(_Collective(group, input_.nbytes, in_backward, self._mark()))
        return collectives[-1]


class _AllGather(fsdp.DefaultAllGather):
    """FSDP2's default all-gather, timed."""

    def __init__(self, timing: ShardTiming, group: int) -> None:
        self._timing, self._group = timing, group

    @override
    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """Do the all-gather; wait for its end unless it is asynchronous."""
        call, overlap = super().__call__, async_op or self._timing.asynchronous
        return self._timing.gather(
            self._group, input_tensor, lambda: call(output_tensor, input_tensor, group, overlap), overlap=overlap
        )


class _ReduceScatter(fsdp.DefaultReduceScatter):
    """FSDP2's default reduce-scatter, timed."""

    def __init__(self, timing: ShardTiming, group: int) -> None:
        self._timing, self._group = timing, group

    @override
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work:
        """Do the reduce-scatter; wait for its end on a CPU, while on a GPU the stream waits."""
        call, operation = super().__call__, dist.ReduceOp.SUM if self._timing.summed else op
        return cast(
            dist.Work,  # the result is None if the call is not asynchronous
            self._timing.reduce(
                self._group, input_tensor, lambda: call(output_tensor, input_tensor, group, operation, async_op)
            ),
        )


class _Waited(dist.Work):
    """An asynchronous collective that reports when its rank begins and ends to wait for it."""

    def __init__(self, work: dist.Work, waiting: Callable[[bool], None]) -> None:
        super().__init__()
        self._work, self._says = work, waiting

    @override
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the collective has ended."""
        self._says(True)
        done = bool(self._work.wait())
        self._says(False)
        return done
