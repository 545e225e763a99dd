"""Collective operations on messages, for timing: `stallpoint.strategies.options.OPERATIONS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from stallpoint.errors import CannotRun
from stallpoint.measure.synchronisation.communicator import Communicator
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER


@dataclass(frozen=True)
class Operation:
    """A collective operation on a message of a fixed size; every value of the message is 1 (float32)."""

    name: str
    message_bytes: int
    """Bytes of the complete message, which is gathered, reduced or sent."""
    do: Callable[[], int]
    result: torch.Tensor
    """Buffer with the last result; an all-reduce works in place."""
    ranks: int

    def check(self, calls: int) -> None:
        """Raise `ArithmeticError` unless `result` is correct after `calls` calls, within float32 rounding."""
        factors = {ALL_REDUCE: float(self.ranks) ** calls, REDUCE_SCATTER: float(self.ranks)}
        expected = torch.tensor(factors.get(self.name, 1.0)).expand(2)
        ends = self.result.view(-1)[[0, -1]].cpu()
        if not torch.allclose(ends, expected, rtol=0 if calls == 1 else 1e-4, atol=0):
            raise ArithmeticError(
                f"{calls} times {self.name} of {self.message_bytes} bytes gave {ends.tolist()}, not {expected[0]}"
            )


class Operations:
    """Factory of operations on messages of at most `max_bytes` bytes; the messages share memory.

    All ranks must request the same operations; an operation that the communicator lacks raises `CannotRun`.
    """

    def __init__(self, communicator: Communicator, max_bytes: int, device: torch.device) -> None:
        self._communicator, self._ranks = communicator, communicator.ranks
        self._max_values, self._device = max_bytes // 4 + self._ranks, device
        self._buffers: dict[str, torch.Tensor] = {}
        self._tried: set[str] = set()

    def __call__(self, name: str, message_bytes: int) -> Operation:
        """Return the operation `name` on a message of `message_bytes`; a rank's part of it is at least one value."""
        if name not in self._tried:
            self._tried.add(name)
            first = self._operation(name, 4)  # before `try`: a lack of memory does not mean a missing operation
            try:
                first.do()
            except (RuntimeError, NotImplementedError) as error:
                raise CannotRun(
                    f"the communicator has no {name} ({str(error).partition(chr(10))[0]}); leave it out of "
                    "collectives.operations, or choose a preset that does not send it"
                ) from error
        return self._operation(name, message_bytes)

    def _operation(self, name: str, message_bytes: int) -> Operation:
        values = message_bytes // 4
        part = max(1, values // self._ranks)
        rows = self._ranks, part
        communicator = self._communicator
        if name in (ALL_REDUCE, "broadcast"):
            result = self._buffer("sent", 1.0, values)
            do = communicator.all_reduce if name == ALL_REDUCE else communicator.broadcast
            return Operation(name, message_bytes, lambda: do(result), result, self._ranks)
        shape = {ALL_GATHER: ((part,), rows), REDUCE_SCATTER: (rows, (part,)), "all-to-all": (rows, rows)}
        from_, to = shape.get(name, ((values,), (values,)))
        collective = {
            ALL_GATHER: communicator.all_gather,
            REDUCE_SCATTER: communicator.reduce_scatter,
            "all-to-all": communicator.all_to_all,
            "send-receive": communicator.pass_on,
        }[name]
        outgoing, received = self._buffer("sent", 1.0, *from_), self._buffer("received", 0.0, *to)
        return Operation(name, message_bytes, lambda: collective(received, outgoing), received, self._ranks)

    def _buffer(self, purpose: str, value: float, *shape: int) -> torch.Tensor:
        if purpose not in self._buffers:
            self._buffers[purpose] = torch.empty(self._max_values, device=self._device)
        return self._buffers[purpose][: torch.Size(shape).numel()].fill_(value).view(shape)
