"""A server of a share of the weights, which answers each worker separately over a socket.

MPI would end all ranks when one dies. With sockets a dead worker only closes its connection, and the others continue.
One thread for each worker reads the worker's requests. A lock lets one thread handle a request at a time.
"""

from __future__ import annotations

import hmac
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import nn

from stallpoint.measure.training.optimisers import Optimiser, restore

TOKEN_BYTES = 16
STEP_BYTES = 8
"""Bytes in which a request gives the worker's step, counted from 0, before a gradient."""
Values = torch.Tensor
"""Values of the server's share, float32 in the host's memory, [values]."""


class Ask(IntEnum):
    """Request of a worker; its number is sent as one byte before the values."""

    PUSH = 0
    """Update with the sent gradient; return nothing."""
    PULL = 1
    """Return the weights."""
    STEP = 2
    """Update with the sent gradient; return the weights once the bound on staleness allows it."""
    MEET = 3
    """Return the centre, then move it towards the worker's weights, which are sent."""
    LOOK = 4
    """Return the weights for evaluation only."""


HAS_GRADIENT = (Ask.PUSH, Ask.STEP)
HAS_VALUES = (*HAS_GRADIENT, Ask.MEET)
ANSWERED = (Ask.PULL, Ask.STEP, Ask.MEET, Ask.LOOK)


@dataclass(frozen=True)
class Rules:
    """Rules by which a server updates its weights and lets fast workers wait."""

    workers: int
    gradients_per_update: int = 1
    bound: int | None = None
    """Number of iterations by which a worker may be ahead of the slowest worker; None for any number."""
    rate: float = 0.0
    """Part of the distance to a worker's weights by which the centre moves towards them."""


class Server:
    """Server of `weights`, slices of parameters, which `optimiser` updates."""

    def __init__(self, weights: Sequence[nn.Parameter], optimiser: Optimiser, rules: Rules) -> None:
        self._slices, self._optimiser, self._rules = weights, optimiser, rules
        self._sizes = [one_slice.numel() for one_slice in weights]
        self._changed = threading.Condition()
        self._version = 0
        """Number of updates so far."""
        self._pulled = dict.fromkeys(range(rules.workers), 0)
        """Version of the weights with which each worker trains."""
        self._clocks = dict.fromkeys(range(rules.workers), 0)
        """Number of steps of each connected worker."""
        self._waiting: dict[int, Values | None] = {}
        """Weights for each worker that waits for weights; None until they are available."""
        self._collected: list[tuple[int, int]] = []
        """Worker, and version of its weights, of each gradient that waits for an update."""
        self._sum = torch.zeros(sum(self._sizes))
        self._rows: list[tuple[int, int, int]] = []
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    def listen(self, host: str, token: bytes) -> int:
        """Listen for workers, and return the port; connections that do not send `token` are closed."""
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        self._listener = socket.create_server((host, 0), family=family, backlog=self._rules.workers)
        port: int = self._listener.getsockname()[1]
        self._threads.append(threading.Thread(target=self._accept, args=(self._listener, token), daemon=True))
        self._threads[0].start()
        return port

    def close(self, *, wait: bool) -> None:
        """Stop listening; with `wait`, serve connected workers until they leave."""
        if self._listener:
            with suppress(OSError):  # some systems refuse to shut down a listening socket
                self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept` in its thread; `close` alone would not
            self._listener.close()
        for thread in self._threads if wait else ():
            thread.join()

    def staleness(self) -> list[tuple[int, int, int]]:
        """Return for each gradient the number of its update, its worker, and its staleness: the number of updates since
        the worker got its weights."""
        with self._changed:
            return list(self._rows)

    def state(self) -> dict[str, Any]:
        """Return the server's state, for a checkpoint; called while no request is pending."""
        with self._changed:
            return {
                "weights": self._weights(), "optimiser": [values.clone() for values in self._optimiser.state],
                "version": self._version, "pulled": dict(self._pulled), "clocks": dict(self._clocks),
                "collected": list(self._collected), "sum": self._sum.clone(),
                "rows": torch.tensor(self._rows, dtype=torch.int64).reshape(-1, 3),
            }  # fmt: skip

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        with self._changed:
            for one_slice, part in zip(self._slices, torch.split(state["weights"], self._sizes), strict=True):
                one_slice.copy_(part.view_as(one_slice))
            restore(self._optimiser, state["optimiser"])
            self._version, self._pulled, self._clocks = state["version"], dict(state["pulled"]), dict(state["clocks"])
            self._collected, self._sum = list(state["collected"]), state["sum"]
            self._rows = [(update, worker, stale) for update, worker, stale in state["rows"].tolist()]

    def answer(self, worker: int, ask: Ask, values: Values, step: int = 0) -> Values | None:
        """Handle a request of a worker in its `step`, counted from 0; return the answer once the rules allow it."""
        with self._changed:
            if ask in HAS_GRADIENT:
                self._collect(worker, values, step)
            if ask == Ask.STEP:
                self._clocks[worker] += 1
                self._waiting[worker] = None
                self._release_workers()
                self._changed.wait_for(lambda: self._waiting[worker] is not None)
                return self._waiting.pop(worker)
            if ask == Ask.MEET:
                centre = self._weights()
                self._move(worker, values)
                return centre
            if ask == Ask.PULL:
                self._pulled[worker] = self._version
            return None if ask == Ask.PUSH else self._weights()

    def leave(self, worker: int) -> None:
        """Remove a worker, so that no other worker waits for it."""
        with self._changed:
            self._clocks.pop(worker, None)
            self._release_workers()

    def _release_workers(self) -> None:
        """Give the weights to all waiting workers that need not wait for slower workers any more."""
        slowest, bound = min(self._clocks.values(), default=0), self._rules.bound
        workers = [
            worker for worker, got in self._waiting.items()
            if got is None and (bound is None or self._clocks.get(worker, slowest) - slowest <= bound)
        ]  # fmt: skip
        if workers:
            weights = self._weights()
            for worker in workers:
                self._waiting[worker], self._pulled[worker] = weights, self._version
            self._changed.notify_all()

    def _collect(self, worker: int, gradient: Values, step: int) -> None:
        """Add a gradient. Once there are enough, update the weights, with the step size of this gradient's `step`."""
        self._sum += gradient
        self._collected.append((worker, self._pulled[worker]))
        if len(self._collected) < self._rules.gradients_per_update:
            return
        for one_slice, part in zip(self._slices, torch.split(self._sum, self._sizes), strict=True):
            one_slice.grad = part.view_as(one_slice)
        self._optimiser.begin(step)
        self._optimiser.step(self._slices)
        self._sum.zero_()
        self._note(self._collected)
        self._collected = []

    @torch.no_grad()
    def _move(self, worker: int, values: Values) -> None:
        for one_slice, part in zip(self._slices, torch.split(values, self._sizes), strict=True):
            one_slice.lerp_(part.view_as(one_slice), self._rules.rate)
        self._note([(worker, self._pulled[worker])])
        self._pulled[worker] = self._version

    def _note(self, gradients: Iterable[tuple[int, int]]) -> None:
        """Note an update; each of its `gradients` is given by its worker and the version of the worker's weights."""
        self._rows += [(self._version + 1, worker, self._version - version) for worker, version in gradients]
        self._version += 1

    def _weights(self) -> Values:
        return torch.cat([one_slice.detach().reshape(-1) for one_slice in self._slices])

    def _accept(self, listener: socket.socket, token: bytes) -> None:
        with suppress(OSError):  # raised when `close` closes the listening socket
            while True:
                connection, _ = listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection, token), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket, token: bytes) -> None:
        """Answer a worker until it leaves or fails."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        worker: int | None = None
        with closing(connection), suppress(ConnectionError, OSError):
            if not hmac.compare_digest(bytes(received(connection, TOKEN_BYTES)), token):
                return
            worker = int.from_bytes(received(connection, 4), "little")
            values = torch.zeros(sum(self._sizes))
            while True:
                ask = Ask(received(connection, 1)[0])
                step = int.from_bytes(received(connection, STEP_BYTES), "little") if ask in HAS_GRADIENT else 0
                if ask in HAS_VALUES:
                    fill(connection, as_bytes(values))
                answer = self.answer(worker, ask, values, step)
                if answer is not None:
                    connection.sendall(as_bytes(answer))
        if worker is not None:
            self.leave(worker)


def received(connection: socket.socket, size: int) -> bytearray:
    """Receive `size` bytes; raises `ConnectionError` if the other end closed the connection."""
    data = bytearray(size)
    fill(connection, memoryview(data))
    return data


def fill(connection: socket.socket, view: memoryview) -> None:
    """Receive bytes until `view` is full; raises `ConnectionError` as `received` does."""
    while len(view):
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the other end closed the connection")
        view = view[count:]


def as_bytes(values: Values) -> memoryview:
    """Return the memory of `values` as bytes, without a copy."""
    return values.numpy().data.cast("B")


def ends(values: int, servers: int) -> list[tuple[int, int]]:
    """Return begin and end of each server's share of a number of `values`."""
    return [(values * server // servers, values * (server + 1) // servers) for server in range(servers)]


def share(parameters: Iterable[nn.Parameter], begin: int, end: int) -> list[nn.Parameter]:
    """Return copies of the values from `begin` to `end` in the host's memory, a slice for each parameter.

    Slices of matrices and filters stay two-dimensional, as optimisers treat biases differently.
    """
    slices, offset = [], 0
    for parameter in parameters:
        first, last = max(begin - offset, 0), min(end - offset, parameter.numel())
        offset += parameter.numel()
        if first < last:
            part = parameter.detach().reshape(-1)[first:last].to("cpu", copy=True)
            slices.append(nn.Parameter(part.reshape(1, -1) if parameter.dim() > 1 else part))
    return slices


MakeOptimiser = Callable[[Sequence[nn.Parameter]], Optimiser]
"""Function that makes the optimiser of a server's share."""
