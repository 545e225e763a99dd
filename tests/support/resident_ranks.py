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
        self._started: _Started | None = None

    def __call__(self, function: Callable[..., Any], *arguments: Any, count: int = RANKS) -> list[Any]:
        """What `function` returned on each of the first `count` ranks."""
        self._started = self._started or _Started(self._scheme)
        try:
            answers = self._started.answers((os.getcwd(), sys.path), (function, arguments), count)
        except BaseException:
            self._started.kill()
            self._started = None
            raise
        if wrong := [f"rank {rank}: {text}" for rank, (well, text) in enumerate(answers) if not well]:
            raise RankError("\n".join(wrong))
        return [result for _, result in answers]

    def end(self) -> None:
        """End the processes, which wait for a function."""
        if self._started:
            self._started.end()
        self._started = None


class _Started:
    """The processes, and a connection to each."""

    def __init__(self, scheme: str) -> None:
        from launching import ENVIRONMENT, MPIRUN

        self._folder = Path(tempfile.mkdtemp(prefix="ranks"))
        self._log, address = self._folder / "log", str(self._folder / "socket")
        environment = {**ENVIRONMENT, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [*MPIRUN, "-n", str(RANKS), sys.executable, "-m", "resident_ranks", address, scheme]
        self._ranks: dict[int, Connection] = {}
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen(RANKS)
            server.settimeout(STARTING)
            with self._log.open("w") as log:
                self._job = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                while len(self._ranks) < RANKS:
                    accepted, _ = server.accept()
                    accepted.setblocking(True)
                    connection = Connection(accepted.detach())
                    self._ranks[connection.recv()] = connection
            except BaseException:
                self.kill()
                raise

    def answers(self, place: tuple[str, list[str]], task: Any, count: int) -> list[tuple[bool, Any]]:
        """From each rank whether all went well, and the result or traceback."""
        order = pickle.dumps(task)
        awaited = {self._ranks[rank]: rank for rank in range(count)}
        for connection in awaited:
            connection.send((*place, order, count))
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

    def end(self) -> None:
        for connection in self._ranks.values():
            connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._job.wait(STARTING)
        self.kill()

    def kill(self) -> None:
        self._job.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._job.wait(ENDING)
        self._job.kill()
        self._job.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


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
