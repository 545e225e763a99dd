"""MPI ranks that stay between tests and carry out functions: starting Python with PyTorch takes each of them 2 s.

``ranks(function, *arguments, count=2)`` calls ``function(world, *arguments)`` on the first two ranks at once, whose
`World` the first argument is, and returns what each of them returned. Functions are passed by name, so they stand in a
module of the tests. The fixture `ranks` (``tests/unit/conftest.py``) is one set for each process of pytest; a set whose
ranks died, or wait for each other, is replaced at the next call.

``python -m resident_ranks ADDRESS SCHEME`` is one of the ranks: it takes functions from a socket, without a cpu.
"""

import os
import pickle
import random
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path
from typing import Any

RANKS = 4
STARTING, WORKING, ENDING = 120.0, 300.0, 10.0
"""How long ranks may take for that before they are given up, s."""


class RankError(AssertionError):
    """What went wrong on ranks, with their tracebacks."""


class Ranks:
    """Four ranks whose MPI library reduces by `scheme`; started by the first call."""

    def __init__(self, scheme: str = "library") -> None:
        self._scheme = scheme
        self._connections: dict[int, Connection] = {}

    def __call__(self, function: Callable[..., Any], *arguments: Any, count: int = RANKS) -> list[Any]:
        """What `function` returned on each of the first `count` ranks."""
        try:
            if not self._connections:
                self._start()
            answers = self._answers(pickle.dumps((function, arguments)), count)
        except BaseException:
            self._kill()
            raise
        if wrong := [f"rank {rank}: {text}" for rank, (well, text) in enumerate(answers) if not well]:
            raise RankError("\n".join(wrong))
        return [result for _, result in answers]

    def end(self) -> None:
        """End the processes, which wait for a function."""
        if self._connections:
            self._disconnect()
            with suppress(subprocess.TimeoutExpired):
                self._job.wait(STARTING)
            self._kill()

    def _start(self) -> None:
        from launching import ENVIRONMENT, MPIRUN, copied

        self._folder = Path(tempfile.mkdtemp(prefix="ranks"))
        self._log, address = self._folder / "log", str(self._folder / "socket")
        environment = {**ENVIRONMENT, **copied(), "OMP_NUM_THREADS": "1"}
        command = [*MPIRUN, "-n", str(RANKS), sys.executable, "-m", "resident_ranks", address, self._scheme]
        with socket.socket(socket.AF_UNIX) as server, self._log.open("w") as log:
            server.bind(address)
            server.listen(RANKS)
            server.settimeout(STARTING)
            self._job = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            while len(self._connections) < RANKS:
                accepted, _ = server.accept()
                accepted.setblocking(True)
                connection = Connection(accepted.detach())
                self._connections[connection.recv()] = connection

    def _answers(self, order: bytes, count: int) -> list[tuple[bool, Any]]:
        """From each rank whether all went well, and the result or traceback."""
        awaited = {self._connections[rank]: rank for rank in range(count)}
        for connection in awaited:
            connection.send((os.getcwd(), sys.path, order, count))
        found: dict[int, tuple[bool, Any]] = {}
        deadline = time.monotonic() + WORKING
        while awaited:
            ready = wait(awaited, max(0.0, deadline - time.monotonic()))
            wrong = [f"rank {rank}: {text}" for rank, (well, text) in found.items() if not well]
            if not ready:
                raise RankError("\n".join([f"ranks {sorted(awaited.values())} do not come to an end", *wrong]))
            for connection in ready:
                rank = awaited.pop(connection)
                try:
                    found[rank] = connection.recv()
                except (EOFError, ConnectionError):
                    raise RankError("\n".join([f"rank {rank} is gone", *wrong, self._log.read_text()])) from None
                if not found[rank][0]:  # the others may wait for it
                    deadline = min(deadline, time.monotonic() + ENDING)
        return [found[rank] for rank in range(count)]

    def _disconnect(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _kill(self) -> None:
        self._disconnect()
        self._job.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._job.wait(ENDING)
        self._job.kill()
        self._job.wait()
        shutil.rmtree(self._folder)


def serve(address: str, scheme: str) -> None:
    """Carry out functions until nobody asks any more."""
    import little

    from stallpoint.measure.world import World

    little.be_quick()
    world = World.start(RANKS, scheme)
    parts: dict[int, World | None] = {}
    with Client(address, "AF_UNIX") as connection, suppress(EOFError, ConnectionError):
        connection.send(world.rank)
        while True:
            place, sys.path[:], order, count = connection.recv()
            with unchanged():
                os.chdir(place)
                connection.send_bytes(_answer(order, parts, world, count))


def _answer(order: bytes, parts: dict[int, Any], world: Any, count: int) -> bytes:
    try:
        if count not in parts:
            parts[count] = world.part(range(count), world.reduction)
        function, arguments = pickle.loads(order)
        return pickle.dumps((True, function(parts[count], *arguments)))
    except BaseException:
        return pickle.dumps((False, traceback.format_exc()))


@contextmanager
def unchanged() -> Iterator[None]:
    """A block after which this process is as before: its folder, variables, limit, and PyTorch's settings."""
    import numpy as np
    import torch

    folder, variables, limit = os.getcwd(), dict(os.environ), resource.getrlimit(resource.RLIMIT_FSIZE)
    torch.set_num_threads(1)
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(0)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(1)


if __name__ == "__main__":
    serve(*sys.argv[1:])
