"""Workers that train with servers: asynchronous SGD, Downpour SGD and elastic averaging all ask through `Servers`."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from stallpoint.errors import CannotRun
from stallpoint.measure.synchronisation.exchanging import Exchanging
from stallpoint.measure.synchronisation.interface import Part, Replica, Worker, whole
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
    receive,
    share,
)
from stallpoint.strategies.presets import Preset

Address = tuple[str, int]


class Servers:
    """A worker's connections to all servers, each of which has an equal share of the `values`."""

    def __init__(self, addresses: Sequence[Address], token: bytes, worker: int, values: int) -> None:
        self._parts, self._values = ends(values, len(addresses)), values
        self._connections = [(address, socket.create_connection(address)) for address in addresses]
        for _, connection in self._connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(token + worker.to_bytes(4, "little"))

    def ask(self, ask: Ask, values: Values | None = None, step: int = 0) -> Values:
        """Ask all servers in this step, counted from 0; their answers as one, nothing where there is none.

        Raises `CannotRun` if one is gone.
        """
        head = bytes([ask]) + (step.to_bytes(STEP_BYTES, "little") if ask in HAS_GRADIENT else b"")
        answer = torch.empty(self._values if ask in ANSWERED else 0)
        for send in (True, False) if ask in ANSWERED else (True,):  # all work at the same time
            for (address, connection), (begin, end) in zip(self._connections, self._parts, strict=True):
                try:
                    if send:
                        connection.sendall(head)
                        if ask in HAS_VALUES and values is not None:
                            connection.sendall(as_bytes(values[begin:end]))
                    else:
                        receive(connection, answer[begin:end])
                except OSError as error:
                    raise CannotRun(f"the server at {address[0]}:{address[1]} is gone ({error})") from None
        return answer

    def close(self) -> None:
        """Leave them."""
        for _, connection in self._connections:
            connection.close()


class Served(Exchanging):
    """A worker, and on the first ranks the thread of a server beside it."""

    @classmethod
    def begin(cls, preset: Preset, worker: Worker) -> Part:
        """See `assembly`."""
        return whole(cls(worker.replica, preset, worker.for_server), worker)

    def __init__(self, replica: Replica, preset: Preset, make_optimiser: MakeOptimiser) -> None:
        super().__init__(replica, preset)
        world = replica.world
        parts = ends(self._flat.values, preset.servers_among(world.size))
        token = world.comm.bcast(secrets.token_bytes(TOKEN_BYTES))
        hosts = reachable(world)
        self._server: Server | None = None
        port = 0
        if world.rank < len(parts):
            pieces = share(self._flat.parameters, *parts[world.rank])
            self._server = Server(pieces, make_optimiser(pieces), _rules(preset, world.size))
            port = self._server.listen(hosts[world.rank], token)
        addresses = list(zip(hosts, world.comm.allgather(port), strict=True))[: len(parts)]
        self._servers = Servers(addresses, token, world.rank, self._flat.values)

    def staleness(self) -> Sequence[tuple[int, int, int]]:
        """Of the updates of this rank's server, all that workers have asked for so far; all ranks call it together."""
        self._settle()
        return self._server.staleness() if self._server else []

    def state(self) -> dict[str, Any]:
        """See `Exchanging`; that of the server as well."""
        return {**super().state(), "server": self._server and self._server.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Exchanging`."""
        super().restore(state)
        if self._server:
            self._server.restore(state["server"])

    def close(self, *, wait: bool) -> None:
        """Leave the servers; with `wait` together with all other workers."""
        self._servers.close()
        if self._server:
            self._server.close(wait=wait)

    def _trained(self) -> Values:
        """The servers' weights."""
        self._settle()
        return self._servers.ask(Ask.LOOK)

    def _settle(self) -> None:
        """Return when everything that workers sent has come to the servers."""
        self._servers.ask(Ask.LOOK)  # which a server answers after what this worker sent before
        self._world.comm.Barrier()

    def _exchanged(self, asks: Callable[[], int]) -> None:
        """As `_exchange`, of so many transfers of all values."""
        self._exchange(lambda: 4 * self._flat.values * asks())


def _rules(preset: Preset, workers: int) -> Rules:
    return Rules(
        workers=workers,
        gradients_per_update=preset.gradients_per_update or workers,
        bound=preset.staleness_bound,
        rate=preset.elasticity / workers,
    )
