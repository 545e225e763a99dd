"""Virtual time for processes that measure: `sleep` takes none, and clocks read as if it had.

Every thread has a clock of its own, which runs with the real one. Sleeping sets it forward. What a thread waits for (a
message of another rank, work of another thread) sets it to no earlier than that was ready (Lamport, *Time, Clocks, and
the Ordering of Events*, 1978). So planted sleeps may be far longer than anything that other programs take.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

_STAMP = 99
"""Tag of a message's time."""
_real = time.perf_counter_ns


class _Clock(threading.local):
    ahead = 0
    """Of the real time, ns."""


_clock = _Clock()


def sleep(seconds: float) -> None:
    """Set this thread's clock forward."""
    _clock.ahead += int(seconds * 1e9)


def now() -> int:
    """This thread's time in ns."""
    return _real() + _clock.ahead


def _not_before(time: int) -> None:
    _clock.ahead += max(0, time - now())


def install() -> None:
    """Let this process measure in virtual time; before any of its modules takes hold of a clock."""
    time.perf_counter_ns, time.perf_counter = now, lambda: now() * 1e-9
    _hand_over_to_threads()
    _hand_over_to_ranks()


def _hand_over_to_threads() -> None:
    submit, result = ThreadPoolExecutor.submit, Future.result

    def timed_submit(pool: ThreadPoolExecutor, do: Callable[..., Any], *arguments: Any, **named: Any) -> Future[Any]:
        begun, ended = now(), []

        def timed() -> Any:
            _not_before(begun)
            try:
                return do(*arguments, **named)
            finally:
                ended.append(now())

        future = submit(pool, timed)
        future.ended = ended  # type: ignore[attr-defined]
        return future

    def timed_result(future: Future[Any], timeout: float | None = None) -> Any:
        try:
            return result(future, timeout)
        finally:
            for time in getattr(future, "ended", []):
                _not_before(time)

    ThreadPoolExecutor.submit, Future.result = timed_submit, timed_result  # type: ignore[method-assign,assignment]


def _hand_over_to_ranks() -> None:
    import numpy as np

    from stallpoint.measure.mpi import MPI
    from stallpoint.measure.world import World

    class Timed(MPI.Intracomm):  # type: ignore[misc]
        """Blocking messages that carry their time."""

        def Send(self, values: Any, dest: int) -> None:
            super().Send(np.array([now()]), dest, _STAMP)
            super().Send(values, dest)

        def Recv(self, values: Any, source: int) -> None:
            time = np.empty(1, np.int64)
            super().Recv(time, source, _STAMP)
            super().Recv(values, source)
            _not_before(int(time[0]))

    def collective(name: str) -> Callable[..., None]:
        do = getattr(MPI.Intracomm, name)

        def timed(comm: Timed, *arguments: Any) -> None:
            latest = np.array([now()])
            do(comm, *arguments)
            MPI.Intracomm.Allreduce(comm, MPI.IN_PLACE, latest, MPI.MAX)
            _not_before(int(latest[0]))

        return timed

    for name in ("Barrier", "Bcast", "Reduce", "Allreduce", "Allgather", "Alltoall", "Reduce_scatter_block"):
        setattr(Timed, name, collective(name))
    part = World.part

    def timed_part(world: World, *of: Any) -> World | None:
        found = part(world, *of)
        return found and replace(found, comm=Timed(found.comm))

    World.part = timed_part  # type: ignore[method-assign,assignment]
