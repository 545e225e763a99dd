"""Phases of an iteration of a script, each from one event of the script to the next.

=====================  =================================================================  ========================
phase                  begins where                                                       column of `ITERATIONS`
=====================  =================================================================  ========================
between                the iteration begins, or a mini-batch has come                     ``host_to_device``
waiting for data       the script asks a DataLoader for the next mini-batch                ``data_wait``
forward                the model is called                                                ``forward``
backward               ``backward`` is called (of the loss, whatever it is made of)        ``backward``
waiting for gradients  the last gradients of that backward pass are complete              ``exposed_communication``
waiting for messages   a collective is waited for in the middle of another phase          ``exposed_communication``
update                 ``backward`` returns                                               ``update``
=====================  =================================================================  ========================

The phases' times add up to the iteration's time. A phase may occur several times (if gradients are accumulated).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import dataloader

from stallpoint.measure.clock import Mark
from stallpoint.records.tables import PHASES

DATA, BETWEEN, FORWARD, BACKWARD, EXPOSED, UPDATE = PHASES


class ProbedPhases:
    """Record of the phases of the present iteration."""

    def __init__(self) -> None:
        self._begun: list[tuple[str, Mark]] = []
        self._interrupted = BETWEEN

    def begin(self, phase: str, mark: Mark) -> None:
        """Note that a phase begins."""
        self._begun.append((phase, mark))

    def waiting(self, begins: bool, mark: Mark) -> None:
        """Note that the script `begins` to wait for a collective, or that it continues the interrupted phase."""
        if begins:
            self._interrupted = self._begun[-1][0] if self._begun else BETWEEN
        self.begin(EXPOSED if begins else self._interrupted, mark)

    def seconds(self, read: Callable[[Mark], float], end: Mark) -> dict[str, float]:
        """Return the time of each phase of the iteration that ends at `end`, s. `read` converts marks to seconds."""
        sums = dict.fromkeys(PHASES, 0.0)
        phase, reached = BETWEEN, 0.0
        for following, mark in [*self._begun, (BETWEEN, end)]:
            now = read(mark)
            sums[phase] += now - reached
            phase, reached = following, now
        self._begun.clear()
        self.ended()
        return sums

    def ended(self) -> None:
        """Note that the iteration has ended."""


Tell = Callable[[bool, Any], None]
"""A listener, called with True before an event, and with False and the result after it."""


@contextmanager
def watched(load: Tell, backward: Tell, collective: Tell, optimizer: object = None) -> Iterator[None]:
    """Call `load` around each request for a mini-batch of a DataLoader, `backward` around each backward pass, and
    `collective` around each wait for a collective, also in Horovod's ``DistributedOptimizer.synchronize``.

    Methods of PyTorch's classes, and of the optimizer's class, are replaced within the block.
    """
    loaders = dataloader._BaseDataLoaderIter
    with ExitStack() as undo:
        undo.enter_context(_around(loaders, "__next__", load))
        undo.enter_context(_around(torch.autograd, "backward", backward))
        if dist.is_available():
            undo.enter_context(_around(dist.Work, "wait", collective))
        if hasattr(optimizer, "synchronize"):
            undo.enter_context(_around(type(optimizer), "synchronize", collective))
        yield


@contextmanager
def _around(owner: Any, name: str, tell: Tell) -> Iterator[None]:
    """Call `tell` before and after the function `name` of `owner`."""
    original = getattr(owner, name)

    def wrapped(*positional: Any, **named: Any) -> Any:
        result = None
        tell(True, None)
        try:
            result = original(*positional, **named)
        finally:
            tell(False, result)
        return result

    setattr(owner, name, wrapped)
    try:
        yield
    finally:
        setattr(owner, name, original)


def samples_in(batch: Any) -> int:
    """Return the number of samples in a mini-batch: the first dimension of its first tensor; 0 without a tensor."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else 0
    inside = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((count for one in inside if (count := samples_in(one))), 0)
