"""How well a network does on samples that it is not trained with, all workers sharing them."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from stallpoint.errors import CannotRun
from stallpoint.measure.mpi import MPI
from stallpoint.measure.training.pipeline import InputPipeline
from stallpoint.measure.world import World
from stallpoint.networks import Network
from stallpoint.networks.layers import Loss

SMALLEST, LARGEST = 32, 256
"""Samples in a mini-batch of an evaluation, as far as the worker's own allows: enough for a device, few for memory."""


@dataclass(frozen=True)
class InTurn:
    """Each of `chosen` once in a pass, in their order; all workers have as many mini-batches, the last ones short."""

    chosen: npt.NDArray[np.int64]
    batch: int
    rank: int
    ranks: int

    @property
    def batches(self) -> int:
        """Mini-batches of a pass."""
        return -(-len(self.chosen) // (self.ranks * self.batch))

    def indices(self, iteration: int) -> list[int]:
        """Indices of this worker's samples; iterations count on from pass to pass."""
        own = self.chosen[self.rank :: self.ranks]
        first = iteration % self.batches * self.batch
        return [int(index) for index in own[first : first + self.batch]]


class Classes:
    """What a network's main classifier says, taken where its loss takes it; a context manager.

    Raises `CannotRun` for a network that returns its loss in another way.
    """

    def __init__(self, name: str, network: nn.Module) -> None:
        losses = [module for module in network.modules() if isinstance(module, Loss) and module.weight == 1]
        if not losses:
            raise CannotRun(
                f"network {name}: computes its loss by itself, so that its accuracy is not known; one whose "
                "forward(inputs) returns logits has none to compute"
            )
        self._logits = torch.empty(0)
        self._hook = losses[-1].register_forward_pre_hook(self._note)

    def of(self, network: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Logits [predictions, classes] of these inputs; of tokens there is a prediction for each."""
        network(inputs, labels)
        return self._logits.flatten(end_dim=-2).float()

    def _note(self, _module: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        self._logits = given[0].detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hook.remove()


class Evaluation:
    """Evaluates a network on the same samples again and again; `close` it."""

    def __init__(
        self, classes: Classes, world: World, device: torch.device, pipeline: InputPipeline, batches: int
    ) -> None:
        self._classes, self._world, self._device = classes, world, device
        self._pipeline, self._batches = pipeline, batches

    def run(self, network: nn.Module) -> tuple[float, float]:
        """Mean cross-entropy and the share of right classes, of all workers' samples; all ranks call it.

        `network` is in evaluation mode; what normalisations learned is averaged over the workers before.
        """
        self._average(network)
        found = np.zeros(3)
        for _ in range(self._batches):
            batch = self._pipeline.next_batch()
            if len(batch.labels):
                inputs, labels = batch.inputs.to(self._device), batch.labels.to(self._device)
                logits, right = self._classes.of(network, inputs, labels), labels.flatten()
                loss = functional.cross_entropy(logits, right, reduction="sum").item()
                found += loss, (logits.argmax(1) == right).sum().item(), len(right)
        self._world.comm.Allreduce(MPI.IN_PLACE, found)
        loss, correct, predictions = found
        return float(loss / predictions), float(correct / predictions)

    def close(self) -> None:
        """Close the samples' files."""
        self._pipeline.close()

    def _average(self, network: nn.Module) -> None:
        if self._world.size == 1:
            return
        for values in network.buffers():
            if values.is_floating_point():
                mean = values.detach().cpu().numpy() / self._world.size
                self._world.comm.Allreduce(MPI.IN_PLACE, mean)
                values.copy_(torch.from_numpy(mean))


def check_labels(
    classes: Classes, network: nn.Module, known: Network, device: torch.device, labels: int, storage: str
) -> None:
    """Raise `CannotRun` where a storage's `labels` need more classes than the network tells apart."""
    logits = classes.of(network, *known.takes.example(2, device))
    if labels > logits.shape[1]:
        raise CannotRun(
            f"storage {storage}: labels up to {labels - 1}, but network {known.name} tells {logits.shape[1]} classes "
            f"apart (0 to {logits.shape[1] - 1}); another network or other labels are needed"
        )
