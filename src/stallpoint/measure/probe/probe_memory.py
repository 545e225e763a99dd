"""Peak memory of a script's rank on host and GPU, and its known parts."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from stallpoint.measure.machine.peak_memory import status


class Memory:
    """Peak memory from the beginning of a training loop to its end; parameters count by their shards."""

    def __init__(self, model: nn.Module, optimizer: Optimizer | None, device: torch.device) -> None:
        self._model, self._optimizer, self._device = model, optimizer, device
        self._weights = _bytes((*model.parameters(), *model.buffers()))
        in_host = self._weights if device.type == "cpu" else 0
        self._process = max(0, status("VmRSS") - in_host)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def row(self) -> dict[str, Any]:
        """Return columns of `tables.PEAK_MEMORY` but the rank; the host's peak is the process's since it was
        started."""
        on_gpu = self._device.type == "cuda"
        return {
            "host_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "device_peak": torch.cuda.max_memory_allocated(self._device) if on_gpu else None,
            "process": self._process,
            "weights": self._weights,
            "gradients": _bytes(weights for weights in self._model.parameters() if weights.requires_grad),
            "optimiser": _bytes(_state(self._optimizer)) if self._optimizer else 0,
        }


def _state(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for of_parameter in optimizer.state.values():
        values = of_parameter.values() if isinstance(of_parameter, dict) else ()
        yield from (value for value in values if isinstance(value, torch.Tensor))


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of this rank's parts."""
    return sum((one.to_local() if hasattr(one, "to_local") else one).nbytes for one in tensors)
