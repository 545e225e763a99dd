"""Exchange of one message: its gradients are summed everywhere, or replaced by updated weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn

from stallpoint.measure.synchronisation.communicator import Communicator
from stallpoint.measure.synchronisation.compression import Reducer
from stallpoint.measure.synchronisation.gradients import Bucket, Gradients


class Exchange(Protocol):
    """Sends one message after the other."""

    updates: bool
    """Whether the weights are updated when it returns, not only the gradients summed."""

    def send(self, message: Bucket) -> int:
        """Return when the result is there; bytes this rank put into messages."""


class Sum:
    """Every rank gets the sum of the gradients."""

    updates = False

    def __init__(self, gradients: Gradients, reducer: Reducer) -> None:
        self._gradients, self._reducer = gradients, reducer

    def send(self, message: Bucket) -> int:
        """Sum the message's spans, one after the other."""
        return sum(self._reducer.sum(span.values, span.offset) for span in self._gradients.spans(message))


class Empty:
    """The gradients stay unchanged; a single value is summed instead."""

    updates = False

    def __init__(self, communicator: Communicator, device: torch.device) -> None:
        self._communicator, self._value = communicator, torch.zeros(1, device=device)

    def send(self, message: Bucket) -> int:
        """Sum the value."""
        return self._communicator.all_reduce(self._value)


class ParameterServer:
    """Every rank sends its gradients to rank 0, which updates the weights and sends them back to each.

    Rank 0 is a worker too. The update is a part of the communication here, as the workers wait for it: a rank's
    exposed communication ends when it has its new weights (rank 0: when it has sent them), and the phase of the
    update is empty on all of them. Only rank 0 holds momenta.
    """

    updates = True

    def __init__(
        self, gradients: Gradients, communicator: Communicator, update: Callable[[list[nn.Parameter]], None]
    ) -> None:
        self._gradients, self._communicator, self._update = gradients, communicator, update

    def send(self, message: Bucket) -> int:
        """Send gradients and receive weights."""
        parameters = self._gradients.parameters(message)
        count = sum(self._communicator.collect(span.values) for span in self._gradients.spans(message))
        if self._communicator.rank == 0:
            self._update(parameters)
        return count + sum(self._communicator.spread(weights.detach().view(-1)) for weights in parameters)
