"""Traces that NCCL's own profilers wrote, with communication only: collectives as kernels, and their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from stallpoint.errors import InputError
from stallpoint.inputs.documents import open_bytes
from stallpoint_traces.formats.events import BYTE, CALL, KERNEL, UNKNOWN, Columns, EventCommunication, Trace

T = TypeVar("T")


@dataclass(frozen=True)
class Collective:
    """A collective, or a message from rank to rank, on one rank; times in µs."""

    kind: str
    """NCCL's name of the function, such as ``AllReduce``, ``Send``."""
    called: float
    start: float
    end: float
    bytes: int
    """Bytes of the rank's input."""
    group: str
    """The communicator."""
    group_size: int = UNKNOWN
    algorithm: str = ""
    protocol: str = ""

    @property
    def name(self) -> str:
        """Name like NCCL's kernels, plus the size: iterations are found as repeated sequences of names."""
        how = "".join(f"_{part.upper()}" for part in (self.algorithm, self.protocol) if part and part != "unknown")
        return f"ncclKernel_{'SendRecv' if self.kind in ('Send', 'Recv') else self.kind}{how}({self.bytes} bytes)"


def lines_in(path: Path, notes: list[str], what: str, read: Callable[[bytes], T | None]) -> Iterator[T]:
    """Yield `read(line)` for each line of a file; add `notes` on damage, and on lines that are no `what`."""
    broken = 0
    try:
        with open_bytes(path) as file:
            for line in filter(bytes.strip, file):
                try:
                    found = read(line)
                except (ValueError, KeyError, TypeError, AttributeError):
                    broken += 1
                else:
                    if found is not None:
                        yield found
    except (OSError, EOFError) as error:
        notes.append(f"the file is damaged ({error}); what follows is not read")
    if broken:
        notes.append(f"{broken} lines that are no {what} are excluded")


def traces_of(path: Path, of_rank: Mapping[int, list[Collective]], notes: list[str]) -> list[Trace]:
    """Return the trace of each rank; `InputError` if a rank has no collectives."""
    if not of_rank or not all(of_rank.values()):
        raise InputError(f"{path}: no collective is recorded")
    return [_trace_of(path, rank, collectives, list(notes)) for rank, collectives in sorted(of_rank.items())]


def _trace_of(path: Path, rank: int, collectives: list[Collective], notes: list[str]) -> Trace:
    """Return the trace of one rank, with a stream for each communicator."""
    columns = Columns()
    for number, one in enumerate(collectives):
        columns.add_row(CALL, f"nccl{one.kind}", one.called, 0.0, "host", correlation=number)
        columns.add_row(
            KERNEL, one.name, one.start, one.end - one.start, one.group, stream=columns.threads[one.group],
            correlation=number, message=EventCommunication(one.kind, one.bytes, one.group_size, BYTE, one.group),
        )  # fmt: skip
    world_size = max(one.group_size for one in collectives)
    if world_size < 1:
        notes.append("the file does not say how many workers there were")
    notes.append("only communication was traced: what computing hides of it, and other worker counts, is not told")
    events, began = columns.events(1e-6)
    return Trace(path, rank, max(world_size, 1), events, tuple(notes), began, computing=False)
