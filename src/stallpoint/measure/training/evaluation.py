"""Evaluation of a network during a run to a target: accuracy, sharpness, and checkpoints.

Loss and accuracy are computed on validation samples, which are divided among all workers.

The sharpness of the minimum at the end of a run is metric 2.1 of Keskar et al. (ICLR 2017, "On Large-Batch Training for
Deep Learning") over all weights: the largest loss in a small box around the weights. The authors search the box by ten
iterations of L-BFGS-B. Here ten steps go half the box's radius along the signs of the gradient. They find as large a
loss as SciPy's L-BFGS-B (LeNet: 104.6 and 104.1 %) in 0.4 of its time, with 3 numbers for each weight instead of 25.

A checkpoint is the state from which an interrupted run continues, in one file that is complete or absent. The file
begins with the SHA-256 of the rest, and names its cell. Rank 0 writes and reads it.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from stallpoint.errors import CannotRun, InputError, Unavailable
from stallpoint.measure.mpi import MPI
from stallpoint.measure.training.input_pipeline import InputPipeline
from stallpoint.measure.world import World
from stallpoint.networks import Network
from stallpoint.networks.layers import Loss
from stallpoint.records.atomic import atomic
from stallpoint.study.cells import Cell

MIN_BATCH, MAX_BATCH = 32, 256
"""Bounds of an evaluation's mini-batch: large enough to keep a device busy, small enough for its memory."""


@dataclass(frozen=True)
class OnePassOrder:
    """Order in which a pass of all workers reads each of the samples `chosen` once, in equally many mini-batches."""

    chosen: npt.NDArray[np.int64]
    batch: int
    rank: int
    ranks: int

    @property
    def batches(self) -> int:
        """Return the number of mini-batches of a pass."""
        return -(-len(self.chosen) // (self.ranks * self.batch))

    def indices(self, iteration: int) -> list[int]:
        """Return the indices of this worker's samples in an iteration, counted over all passes."""
        own = self.chosen[self.rank :: self.ranks]
        first = iteration % self.batches * self.batch
        return [int(index) for index in own[first : first + self.batch]]


class Classes:
    """Reader of the logits that a network's main classifier passes to its `Loss`; a context manager.

    Raises `CannotRun` for a network that computes its loss without a module `Loss`.
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
        """Return the logits of `inputs`, [predictions, classes]: one prediction for each image, or for each token."""
        network(inputs, labels)
        return self._logits.flatten(end_dim=-2).float()

    def scores(self, network: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, float, int]:
        """Return the summed cross-entropy, the number of correct predictions, and the number of all predictions."""
        logits, targets = self.of(network, inputs, labels), labels.flatten()
        loss = functional.cross_entropy(logits, targets, reduction="sum").item()
        return loss, (logits.argmax(1) == targets).sum().item(), len(targets)

    def _note(self, _module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self._logits = inputs[0].detach()

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
        """Return mean cross-entropy and accuracy over all workers' samples; called on all ranks.

        `network` must be in evaluation mode. Running statistics of normalisations are first averaged over the workers.
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
    classes: Classes, network: nn.Module, description: Network, device: torch.device, labels: int, storage: str
) -> None:
    """Raise `CannotRun` if a storage's `labels` need more classes than the network has."""
    logits = classes.of(network, *description.takes.example(2, device))
    if labels > logits.shape[1]:
        raise CannotRun(
            f"storage {storage}: labels up to {labels - 1}, but network {description.name} has {logits.shape[1]} "
            f"classes (0 to {logits.shape[1] - 1}); another network or other labels are needed"
        )


# --- sharpness ------------------------------------------------------------------------------------

EPSILON = 1e-3
"""Radius of the box: a weight x moves by up to EPSILON (abs(x) + 1)."""
STEPS = 10


def sharpness(weights: Sequence[nn.Parameter], loss: Callable[[], Iterable[torch.Tensor]]) -> float:
    """Return the sharpness, 100 (F - f) / (1 + f) in %. f is the loss at the `weights`, F the largest loss in the box.

    `loss` yields terms whose sum is the loss. The weights are restored afterwards. The result is infinite if any loss
    is not finite.
    """
    begin = [values.detach().clone() for values in weights]
    radius = [EPSILON * (values.abs() + 1) for values in begin]
    losses: list[float] = []
    for _ in range(STEPS + 1):
        losses.append(0.0)
        gradients = [torch.zeros_like(values) for values in begin]
        for term in loss():
            losses[-1] += term.item()
            for sums, gradient in zip(gradients, torch.autograd.grad(term, weights), strict=True):
                sums += gradient
        with torch.no_grad():
            for values, centre, half_width, gradient in zip(weights, begin, radius, gradients, strict=True):
                candidate = values + half_width / 2 * gradient.sign()
                values.copy_(candidate.clamp(centre - half_width, centre + half_width))
    with torch.no_grad():
        for values, centre in zip(weights, begin, strict=True):
            values.copy_(centre)
    largest = max(losses) if all(map(math.isfinite, losses)) else math.inf
    return 100 * (largest - losses[0]) / (1 + losses[0])


# --- checkpoints ----------------------------------------------------------------------------------

FORMAT = 3
"""Version of the checkpoint; other versions are not read."""
_DIGEST = 64
"""Number of characters of the checksum."""


def write(file: Path, cell: Cell, state: dict[str, Any]) -> None:
    """Write a checkpoint; `state` consists of tensors, numbers, texts, and lists and dictionaries of these."""
    sink = io.BytesIO()
    torch.save({"cell": cell.to_json(), "format": FORMAT, **state}, sink)
    content = sink.getvalue()
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic(file) as scratch:
        scratch.write_bytes(hashlib.sha256(content).hexdigest().encode() + content)


def read(file: Path, cell: Cell, world: World) -> dict[str, Any] | None:
    """Return the checkpoint's state on all ranks; None if there is no file.

    Raises `InputError` on all ranks if the file is damaged, or belongs to another cell or other settings.
    """
    found: bytes | InputError | None = None
    if world.rank == 0 and file.exists():
        try:
            found = _complete(file, cell)
        except InputError as error:
            found = error
    found = world.comm.bcast(found)
    if isinstance(found, InputError):
        raise found
    return None if found is None else _loaded(found)


def _complete(file: Path, cell: Cell) -> bytes:
    remedy = "delete it, and the run begins anew"
    try:
        data = file.read_bytes()
    except OSError as error:
        raise Unavailable(f"{file}: a checkpoint that cannot be read ({error.strerror})") from error
    digest, content = data[:_DIGEST], data[_DIGEST:]
    if hashlib.sha256(content).hexdigest().encode() != digest:
        raise InputError(f"{file}: a checkpoint that is damaged (its checksum differs); {remedy}")
    state = _loaded(content)
    if state.get("format") != FORMAT:
        raise InputError(f"{file}: a checkpoint of another version of stallpoint; {remedy}")
    if (of := state["cell"]) != cell.to_json():
        raise InputError(f"{file}: a checkpoint of other settings ({of[:200]}...), not of {cell.path}; {remedy}")
    return content


def _loaded(content: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state
