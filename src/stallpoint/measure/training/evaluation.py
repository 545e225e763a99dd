"""Loss and accuracy of a network on validation samples, which all workers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from stallpoint.errors import CannotRun
from stallpoint.measure.mpi import MPI
from stallpoint.measure.training.input_pipeline import InputPipeline
from stallpoint.measure.world import World
from stallpoint.networks import Network
from stallpoint.networks.layers import Loss

MIN_BATCH, MAX_BATCH = 32, 256
"""Bounds of the mini-batch of an evaluation, else the worker's own: large enough for a device, small enough for
memory."""


@dataclass(frozen=True)
class InTurn:
    """Order in which a pass has each of `chosen` once; all workers have equally many mini-batches, the last ones
    short."""

    chosen: npt.NDArray[np.int64]
    batch: int
    rank: int
    ranks: int

    @property
    def batches(self) -> int:
        """Return the number of mini-batches of a pass."""
        return -(-len(self.chosen) // (self.ranks * self.batch))

    def indices(self, iteration: int) -> list[int]:
        """Return the indices of this worker's samples; iterations count on from pass to pass."""
        own = self.chosen[self.rank :: self.ranks]
        first = iteration % self.batches * self.batch
        return [int(index) for index in own[first : first + self.batch]]


class Classes:
    """Logits of a network's main classifier, taken at the input of its loss; a context manager.

    Raises `CannotRun` for a network that does not return its loss this way.
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
        """Return logits [predictions, classes] of these inputs; there is a prediction for each token."""
        network(inputs, labels)
        return self._logits.flatten(end_dim=-2).float()

    def scores(self, network: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, float, int]:
        """Return the summed cross-entropy, the number of right predictions, and that of all."""
        logits, right = self.of(network, inputs, labels), labels.flatten()
        loss = functional.cross_entropy(logits, right, reduction="sum").item()
        return loss, (logits.argmax(1) == right).sum().item(), len(right)

    def _note(self, _module: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        self._logits = given[0].detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()


class Evaluation:
    """Repeated evaluation of a network on the same samples, until `close`."""

    def __init__(
        self, classes: Classes, world: World, device: torch.device, pipeline: InputPipeline, batches: int
    ) -> None:
        self._classes, self._world, self._device = classes, world, device
        self._pipeline, self._batches = pipeline, batches

    def run(self, network: nn.Module) -> tuple[float, float]:
        """Return mean cross-entropy and accuracy over all workers' samples; all ranks call this.

        `network` is in evaluation mode; running statistics of normalisations are averaged over the workers before.
        """
        self._average(network)
        found = np.zeros(3)
        for _ in range(self._batches):
            batch = self._pipeline.next_batch()
            if len(batch.labels):
                found += self._classes.scores(network, batch.inputs.to(self._device), batch.labels.to(self._device))
        self._world.comm.Allreduce(MPI.IN_PLACE, found)
        loss, correct, predictions = found
        return float(loss / predictions), float(correct / predictions)

    def close(self) -> None:
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
    """Raise `CannotRun` if a storage's `labels` need more classes than the network has."""
    logits = classes.of(network, *known.takes.example(2, device))
    if labels > logits.shape[1]:
        raise CannotRun(
            f"storage {storage}: labels up to {labels - 1}, but network {known.name} has {logits.shape[1]} classes "
            f"(0 to {logits.shape[1] - 1}); another network or other labels are needed"
        )
