"""Workers that train with servers: asynchronous SGD, Downpour SGD and elastic averaging."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import starmap
from typing import Any

import torch
from typing_extensions import override

from stallpoint.errors import CannotRun
from stallpoint.measure.synchronisation.exchanging import Exchanging
from stallpoint.measure.synchronisation.interface import Replica, Worker, WorkerPart, unsharded
from stallpoint.measure.synchronisation.rendezvous import reachable
from stallpoint.measure.synchronisation.server import (
    ANSWERED,
    HAS_GRADIENT,
    HAS_VALUES,
    STEP_BYTES,
    TOKEN_BYTES,
    Ask,
    MakeOptimiser,
    Rules,
    Server,
    Values,
    as_bytes,
    ends,
    fill,
    share,
)
from stallpoint.strategies.families.servers_family import AsynchronousOptions, DownpourOptions, ElasticOptions
from stallpoint.strategies.presets import Preset

Address = tuple[str, int]


class Servers:
    """A worker's connections to all servers. Each server has an equal share of the weights, which are `values` numbers.

    A server in this process is called directly: by a slow node's loopback, it would answer later than remote servers.
    """

    def __init__(self, servers: Sequence[Address | Server], token: bytes, worker: int, values: int) -> None:
        self._worker, self._values = worker, values
        self._own: list[tuple[Server, slice]] = []
        self._others: list[tuple[Address, socket.socket, slice]] = []
        for server, part in zip(servers, starmap(slice, ends(values, len(servers))), strict=True):
            if isinstance(server, Server):
                self._own.append((server, part))
            else:
                connection = socket.create_connection(server)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(token + worker.to_bytes(4, "little"))
                self._others.append((server, connection, part))

    def ask(self, ask: Ask, values: Values | None = None, step: int = 0) -> Values:
        """Send the request `ask` to all servers, with `values` if it needs some; return the answers, joined.

        The result is empty for a request without answer. `step` is the worker's step, counted from 0. Raises
        `CannotRun` if a server is gone.
        """
        header = bytes([ask]) + (step.to_bytes(STEP_BYTES, "little") if ask in HAS_GRADIENT else b"")
        answer = torch.empty(self._values if ask in ANSWERED else 0)
        values = answer if values is None else values
        for address, connection, part in self._others:
            with _connection_errors(address):
                connection.sendall(header)
                if ask in HAS_VALUES:
                    connection.sendall(as_bytes(values[part]))
        for server, part in self._own:  # servers in this process come last: `answer` may wait for other workers
            own_answer = server.answer(self._worker, ask, values[part], step)
            if own_answer is not None:
                answer[part] = own_answer
        if ask in ANSWERED:
            for address, connection, part in self._others:
                with _connection_errors(address):
                    fill(connection, as_bytes(answer[part]))
        return answer

    def send_half(self, ask: Ask, values: Values) -> None:
        """Send half of a request to each remote server, then leave all servers, like a worker that is killed."""
        for _, connection, of_server in self._others:
            half = slice(of_server.start, (of_server.start + of_server.stop) // 2)
            connection.sendall(bytes([ask]) + bytes(STEP_BYTES) + as_bytes(values[half]))
        self.close()

    def close(self) -> None:
        for _, connection, _ in self._others:
            connection.close()
        for server, _ in self._own:
            server.leave(self._worker)


@contextmanager
def _connection_errors(address: Address) -> Iterator[None]:
    """Raise `CannotRun` if the server's connection breaks within the block."""
    try:
        yield
    except OSError as error:
        raise CannotRun(f"the server at {address[0]}:{address[1]} is gone ({error})") from None


class Served(Exchanging):
    """Synchronisation of a worker with servers; the first ranks also run a server, in a thread."""

    @classmethod
    def begin(cls, preset: Preset, worker: Worker) -> WorkerPart:
        return unsharded(cls(worker.replica, preset, worker.for_server), worker)

    def __init__(self, replica: Replica, preset: Preset, make_optimiser: MakeOptimiser) -> None:
        super().__init__(replica, preset)
        world = replica.world
        parts = ends(self._flat.values, preset.servers_among(world.size))
        token = world.comm.bcast(secrets.token_bytes(TOKEN_BYTES))
        hosts = reachable(world)
        self._server: Server | None = None
        port = 0
        if world.rank < len(parts):
            shards = share(self._flat.parameters, *parts[world.rank])
            self._server = Server(shards, make_optimiser(shards), _rules(preset, world.size))
            port = self._server.listen(hosts[world.rank], token)
        addresses = list(zip(hosts, world.comm.allgather(port), strict=True))[: len(parts)]
        own = {world.rank: self._server} if self._server else {}
        servers = [own.get(rank, address) for rank, address in enumerate(addresses)]
        self._servers = Servers(servers, token, world.rank, self._flat.values)

    @override
    def staleness(self) -> Sequence[tuple[int, int, int]]:
        """Return the staleness of all updates of this rank's server, after all requests; called on all ranks."""
        self._settle()
        return self._server.staleness() if self._server else []

    @override
    def state(self) -> dict[str, Any]:
        """Return the state of this synchronisation, and the state of this rank's server (None without server)."""
        return {**super().state(), "server": self._server and self._server.state()}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        if self._server:
            self._server.restore(state["server"])

    @override
    def close(self, *, wait: bool) -> None:
        """Leave the servers; with `wait`, this rank's server first serves all other workers until they leave."""
        self._servers.close()
        if self._server:
            self._server.close(wait=wait)

    @override
    def _trained(self) -> Values:
        """Return the servers' weights. A lost worker gets them from rank 0."""
        self._settle()
        weights = torch.empty(self._flat.values) if self._is_lost else self._servers.ask(Ask.LOOK)
        if self._iterations_before_loss:
            self._world.comm.Bcast(weights.numpy())
        return weights

    def _settle(self) -> None:
        """Wait until all requests of workers have arrived at the servers."""
        if not self._is_lost:
            self._servers.ask(Ask.LOOK)  # a server answers after it has read this worker's earlier requests
        self._world.comm.Barrier()

    @property
    def _iterations_before_loss(self) -> int:
        own = self._preset.own
        return own.lost_after if isinstance(own, DownpourOptions) else 0

    @property
    def _is_lost(self) -> bool:
        """Whether this worker has left the servers for good, as a preset may want of the last of several workers."""
        world, after = self._world, self._iterations_before_loss
        return bool(after) and 0 < world.rank == world.size - 1 and self._iterations >= after

    def _exchanged(self, asks: Callable[[], int]) -> None:
        """Time the exchange `asks`, which returns how many times this rank sent one value for each weight."""
        self._exchange(lambda: 4 * self._flat.values * asks())


def _rules(preset: Preset, workers: int) -> Rules:
    own = preset.own
    asynchronous = own if isinstance(own, AsynchronousOptions) else AsynchronousOptions()
    return Rules(
        workers=workers,
        gradients_per_update=asynchronous.gradients_per_update or workers,
        bound=asynchronous.staleness_bound,
        rate=own.elasticity / workers if isinstance(own, ElasticOptions) else 0.0,
    )


class Asynchronous(Served):
    """Asynchronous SGD: a worker sends gradients, and waits until the servers return weights. `server.Rules` say how
    many gradients make an update, and how far a worker may be ahead of the slowest worker before it has to wait."""

    updates = True

    @override
    def finish(self) -> None:
        """Send the gradients, and receive the weights once the server returns them."""
        self._exchanged(self._step)

    def _step(self) -> int:
        self._flat.write(self._servers.ask(Ask.STEP, self._flat.gradients().cpu(), self._iterations))
        return 1


class Elastic(Served):
    """Elastic averaging of workers with a centre (Zhang, Choromanska & LeCun 2015, algorithm 1). The servers hold the
    centre; its weights are the result of training."""

    local_updates = True

    @override
    def _iteration_ended(self) -> None:
        if self._is_due(self._preset.family(ElasticOptions).period):
            self._exchanged(self._meet)

    def _meet(self) -> int:
        own = self._flat.weights().cpu()
        centre = self._servers.ask(Ask.MEET, own)
        self._flat.write(own.lerp(centre, self._preset.family(ElasticOptions).elasticity / self._world.size))
        return 1


class Downpour(Served):
    """Downpour SGD: replicas train independently between pushes and pulls (Dean et al. 2012, algorithm 1.1). Gradients
    are divided by the number of replicas, as in synchronous SGD."""

    local_updates = True

    def __init__(self, replica: Replica, preset: Preset, make_optimiser: MakeOptimiser) -> None:
        super().__init__(replica, preset, make_optimiser)
        self._accrued = torch.zeros(self._flat.values)

    @override
    def finish(self) -> None:
        """Add the gradients to those of the next push."""
        self._accrued += self._flat.gradients().cpu()

    @override
    def state(self) -> dict[str, Any]:
        return {**super().state(), "accrued": self._accrued}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._accrued = state["accrued"]
        if self._is_lost:
            self._servers.close()

    @override
    def _iteration_ended(self) -> None:
        if self._is_lost:
            if self._iterations == self._iterations_before_loss:
                self._servers.send_half(Ask.PUSH, self._accrued)
            return
        own = self._preset.family(DownpourOptions)
        pushes, pulls = self._is_due(own.period), self._is_due(own.pull_period)
        if pushes or pulls:
            self._exchanged(lambda: self._talk(pushes, pulls))

    def _talk(self, pushes: bool, pulls: bool) -> int:
        if pushes:
            step = self._iterations - 1  # steps count from 0; `_iterations` already includes this iteration
            self._servers.ask(Ask.PUSH, self._accrued / self._world.size, step)
            self._accrued.zero_()
        if pulls:
            self._flat.write(self._servers.ask(Ask.PULL))
        return int(pushes)
