"""Pipeline stages: each rank computes a stage of the network and sends its output on, micro-batch by micro-batch.

The order of passes is the strategy's (`Pipeline.schedule`). Labels are sent with the activations, as only the first
rank reads them, and losses with the gradients. Each message begins with a header: the time before the header arrives is
a wait for another stage, the time after it is the transfer.

PyTorch's own pipelines (torch.distributed.pipelining) do not separate wait and transfer, so that they do not show the
bubble. Therefore the schedule is executed here, over MPI.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import nn
from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.measure.clock import Mark
from stallpoint.measure.device import thread_for
from stallpoint.measure.synchronisation.interface import Synchronisation, Worker, WorkerPart, parameters
from stallpoint.measure.training.passes import Ends, Passes
from stallpoint.measure.training.transfers import Received
from stallpoint.networks.cutting import Cutting
from stallpoint.strategies.families.pipeline_family import FORWARD, Pipeline, PipelineOptions
from stallpoint.strategies.presets import Preset

_MAX_DIMENSIONS = 8
_KINDS = (torch.float32, torch.int64)
"""Type of activations and gradients, and type of labels."""


class Stage(Synchronisation):
    """Synchronisation of a pipeline, with this rank's stage of the network. `Worker.division` is where stages begin."""

    @classmethod
    def begin(cls, preset: Preset, worker: Worker) -> WorkerPart:
        stage = cls(preset, worker)
        trained = [
            layer if position in stage.layers else replace(layer, parameters=[])
            for position, layer in enumerate(worker.layers)
        ]
        return WorkerPart(stage, stage.network, worker.layers, trained, parameters(trained))

    def __init__(self, preset: Preset, worker: Worker) -> None:
        network, starts, world, device = worker.network, worker.division, worker.world, worker.device
        self._world, self._clock, self._device, self._waiting = world, worker.clock, device, worker.waiting
        pipeline = preset.strategy
        assert isinstance(pipeline, Pipeline)
        self._schedule = pipeline.schedule(world.rank + 1, world.size)
        self._micro_batches = preset.family(PipelineOptions).micro_batches
        self.shards = world.size
        cutting = Cutting(network)
        self.layers = range(starts[world.rank], [*starts[1:], len(cutting)][world.rank])
        """Positions of the stage's layers in the network."""
        self.network: nn.Module = cutting.part(self.layers.start, self.layers.stop)
        self._before = world.rank - 1 if world.rank else None
        self._behind = world.rank + 1 if world.rank + 1 < world.size else None
        self._thread = thread_for(device, "communication")
        self._sending: list[Future[None]] = []
        self._received: list[tuple[Mark, Mark, Mark]] = []
        self._under_way: dict[int, tuple[torch.Tensor | None, torch.Tensor]] = {}
        """Input and output of each micro-batch before its backward pass."""

    @override
    def passes(self, run: Passes, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[list[torch.Tensor], list[Ends]]:
        """Do the passes of all micro-batches; return their losses, and the ends of passes. Consecutive forward passes
        count as one pass, and so do consecutive backward passes."""
        if self._before is None and len(inputs) % self._micro_batches:
            raise InputError(f"micro_batches: {self._micro_batches} does not divide the mini-batch of {len(inputs)}")
        parts = list(zip(inputs.chunk(self._micro_batches), labels.chunk(self._micro_batches), strict=True))
        losses: list[torch.Tensor] = []
        passes: list[Ends] = []
        for kind, group in groupby(self._schedule, itemgetter(0)):
            if kind == FORWARD:
                if passes:
                    run.timer.passed(*passes[-1])
                with run.in_precision:
                    for _, part in group:
                        self._forward(part, parts)
                forward_end = self._clock.mark()
                continue
            for _, part in group:
                last = len(losses) + 1 == self._micro_batches
                with nullcontext() if last else run.timer.accumulating():
                    losses.append(self._backward(part, run.scale / self._micro_batches))
            passes.append([forward_end, self._clock.mark()])
        return losses, passes

    def _forward(self, part: int, parts: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        if self._before is None:
            (values, own_labels), leaf = parts[part - 1], None
        else:
            (values, own_labels), _ = self._receive(self._before, 2)
            leaf = values.requires_grad_()
        result = self.network(values, own_labels)
        if self._behind is not None:
            self._send(self._behind, [result.detach().float(), own_labels], 0.0)
        self._under_way[part] = leaf, result

    def _backward(self, part: int, scale: float) -> torch.Tensor:
        """Do the backward pass of a micro-batch, whose loss is multiplied by `scale`; return the loss."""
        leaf, result = self._under_way.pop(part)
        if self._behind is None:
            loss = result.detach()
            (result * scale).backward()  # type: ignore[no-untyped-call]
        else:
            (gradient,), value = self._receive(self._behind, 1)
            loss = torch.tensor(value)
            result.backward(gradient.to(result.dtype))  # type: ignore[no-untyped-call]
        if self._before is not None:
            assert leaf is not None
            assert leaf.grad is not None, "each stage computes with what it gets"
            self._send(self._before, [leaf.grad], float(loss))
        return loss

    @override
    def received(self) -> Sequence[Received]:
        return [Received(*map(self._clock.seconds, marks)) for marks in self._received]

    @override
    def clear(self) -> None:
        """Drop the gradients and the times of received messages. Pending messages are still sent."""
        super().clear()
        self._received = []
        self._sending = [sending for sending in self._sending if not sending.done() or sending.result()]

    @override
    def close(self, *, wait: bool) -> None:
        """End the communication thread."""
        self._thread.shutdown(wait=wait, cancel_futures=True)

    def _send(self, rank: int, tensors: Sequence[torch.Tensor], value: float) -> None:
        """Let the communication thread send `tensors` and the number `value` to `rank`, while this rank computes."""
        arrays = [tensor.cpu().contiguous().numpy() for tensor in tensors]
        header = np.zeros(1 + len(arrays) * (1 + _MAX_DIMENSIONS))
        header[0] = value
        for array, row in zip(arrays, header[1:].reshape(len(arrays), -1), strict=True):
            row[0], row[1 : 1 + array.ndim] = array.ndim, array.shape

        def send() -> None:
            for array in (header, *arrays):
                self._world.comm.Send(array, rank)

        self._sending.append(self._thread.submit(send))

    def _receive(self, rank: int, count: int) -> tuple[list[Any], float]:
        """Receive `count` tensors from `rank`; return the tensors, and the value sent with them."""
        self._waiting(True)
        since = self._clock.mark()
        header = np.empty(1 + count * (1 + _MAX_DIMENSIONS))
        self._world.comm.Recv(header, rank)
        start = self._clock.mark()
        tensors = []
        for row, kind in zip(header[1:].reshape(count, -1), _KINDS, strict=False):
            tensor = torch.empty([int(size) for size in row[1 : 1 + int(row[0])]], dtype=kind)
            self._world.comm.Recv(tensor.numpy(), rank)
            tensors.append(tensor.to(self._device))
        self._received.append((since, start, self._clock.mark()))
        self._waiting(False)
        return tensors, float(header[0])
