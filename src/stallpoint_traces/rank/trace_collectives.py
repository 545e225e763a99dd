"""Collectives in a trace: their kinds, sizes, groups, earliest starts and durations."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint_traces.formats.events import MARK, NOTHING, OPERATOR, UNKNOWN, EventCommunication, Events
from stallpoint_traces.rank.iterations import Iterations
from stallpoint_traces.rank.started import Started

VALUE_BYTES = {
    "float": 4, "half": 2, "bfloat16": 2, "double": 8, "int": 4, "long": 8, "byte": 1, "char": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "unsigned char": 1, "signed char": 1, "short": 2, "short int": 2,
    "long int": 8,
}  # fmt: skip
"""Bytes per value, by PyTorch's type name in lower case."""
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE = (
    "AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Reduce",
)  # fmt: skip
SEND_RECEIVE, ALL_TO_ALL = "SendRecv", "AllToAll"
ROUNDS = {ALL_REDUCE: 2, BROADCAST: 1, REDUCE: 1, ALL_GATHER: 1, REDUCE_SCATTER: 1}
"""Number of times that data travel around a ring, of (ranks - 1) rounds each."""
_ENCLOSING = re.compile(r"^(?:nccl|rccl|ucc|mpi):\w|^c10d::\w")
"""Marks and operators of torch.distributed around the call that starts a collective."""
_DEPTH = 4
"""Maximum nesting depth of these marks and operators."""
_KIND = re.compile(
    r"(All_?Reduce|Reduce_?Scatter|All_?Gather|Broadcast|All_?to_?all|Send_?Recv|Reduce|Send|Recv)", re.IGNORECASE
)
_ALGORITHM = re.compile(r"_(RING|TREE|COLLNET\w*?|NVLS\w*?|PAT)(?:_|\(|$)")
_PROTOCOL = re.compile(r"_(LL128|LL|SIMPLE)(?:_|\(|$)")
_NAMES = dict.fromkeys(("send", "recv"), SEND_RECEIVE) | {
    name.lower(): name for name in (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND_RECEIVE, ALL_TO_ALL, REDUCE)
}


@dataclass(frozen=True)
class Collectives:
    """Collectives of one rank's iterations, in the order of their starts; [collectives] each."""

    iteration: npt.NDArray[np.int64]
    """Index of the iteration in which the host started it."""
    kind: tuple[str, ...]
    """Name of NCCL's function, e.g. `ALL_REDUCE`; empty if neither a name nor arguments give it."""
    requested: npt.NDArray[np.bool_]
    """Whether the kind is the requested one: a send-and-receive kernel without its call may serve an all-to-all."""
    algorithm: tuple[str, ...]
    """``RING``, ``TREE``, ...; empty if unknown."""
    protocol: tuple[str, ...]
    """``LL``, ``LL128`` or ``SIMPLE``; empty if unknown."""
    bytes: npt.NDArray[np.int64]
    """Input of each rank, bytes; -1 if unknown."""
    group_size: npt.NDArray[np.int64]
    """Number of ranks that take part; -1 if unknown."""
    group: tuple[str, ...]
    """Name of the process group; empty if unknown."""
    purpose: tuple[str, ...]
    """Purpose of the group as the program names it; empty if unknown."""
    members: tuple[tuple[int, ...], ...]
    """Ranks of the group; empty if unknown."""
    in_splits: tuple[tuple[int, ...], ...]
    """Numbers of values that an all-to-all sends to each rank; empty if they are equal, or unknown."""
    out_splits: tuple[tuple[int, ...], ...]
    """Numbers of values that an all-to-all receives from each rank, likewise."""
    ready: npt.NDArray[np.float64]
    """Earliest possible start, s: after its call, and after all computing that was started before."""
    start: npt.NDArray[np.float64]
    """Start, s."""
    seconds: npt.NDArray[np.float64]
    """Duration with waiting for other ranks, s."""
    index: npt.NDArray[np.int64]
    """Index in `Started`."""

    def __len__(self) -> int:
        return len(self.iteration)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Collectives:
        """Return the chosen collectives."""
        places = np.flatnonzero(chosen)
        some: dict[str, Any] = {
            name: tuple(of[at] for at in places) if isinstance(of, tuple) else of[chosen]
            for name, of in vars(self).items()
        }
        return Collectives(**some)


def collectives(events: Events, started: Started, found: Iterations) -> Collectives:
    """Return the collectives that were started within iterations."""
    iteration = found.of(started.launch)
    index = np.flatnonzero(started.communicates & (iteration >= 0))
    index = index[np.argsort(started.events.start[index], kind="stable")]
    own = started.events.where(index)
    names, payloads = own.text(own.name), own.each_payload
    around = _enclosing(events, started.launch[index], started.by[index])
    asked = [_kind(one.collective) or kind for one, (kind, _) in zip(payloads, around, strict=True)]
    kinds = [kind or _kind(name) for kind, name in zip(asked, names, strict=True)]
    sizes = [
        _bytes(one) if one.elements >= 0 else _bytes(more) for one, (_, more) in zip(payloads, around, strict=True)
    ]
    return Collectives(
        iteration=iteration[index],
        kind=tuple(kinds),
        requested=np.array(
            [bool(one) or kind != SEND_RECEIVE for one, kind in zip(asked, kinds, strict=True)], np.bool_
        ),
        algorithm=tuple(_first_group(_ALGORITHM, name) for name in names),
        protocol=tuple(_first_group(_PROTOCOL, name) for name in names),
        bytes=np.array(sizes, np.int64),
        group_size=np.array([one.group_size for one in payloads], np.int64),
        group=tuple(one.group for one in payloads),
        purpose=tuple(one.purpose for one in payloads),
        members=tuple(_integers(one.members) for one in payloads),
        in_splits=tuple(
            _integers(one.in_splits or more.in_splits) for one, (_, more) in zip(payloads, around, strict=True)
        ),
        out_splits=tuple(
            _integers(one.out_splits or more.out_splits) for one, (_, more) in zip(payloads, around, strict=True)
        ),
        ready=_ready(started)[index],
        start=own.start,
        seconds=own.seconds,
        index=index,
    )


def _enclosing(
    events: Events, moments: npt.NDArray[np.float64], threads: npt.NDArray[np.int32]
) -> list[tuple[str, EventCommunication]]:
    """Return kind and size at each moment, from the innermost mark or operator around it that gives them."""
    marks = events.where(np.isin(events.kind, (MARK, OPERATOR)) & events.called(_ENCLOSING))
    kinds = dict(zip(marks.name.tolist(), (_kind(name) for name in marks.text(marks.name)), strict=True))
    ends = marks.end
    found = [("", NOTHING)] * len(moments)
    for thread in np.unique(marks.thread):
        own = np.flatnonzero(marks.thread == thread)
        mine = np.flatnonzero(threads == thread)
        lasts = np.searchsorted(marks.start[own], moments[mine], side="right")
        for index, last in zip(mine.tolist(), lasts.tolist(), strict=True):
            within = [at for at in own[max(0, last - _DEPTH) : last][::-1] if ends[at] >= moments[index]]
            kind = next(filter(None, (kinds[int(marks.name[at])] for at in within)), "")
            payloads = (marks.payloads[marks.message[at]] for at in within)
            found[index] = kind, next((one for one in payloads if one.elements >= 0), NOTHING)
    return found


def _bytes(payloads: EventCommunication) -> int:
    size = VALUE_BYTES.get(payloads.dtype.lower().removeprefix("c10::"), UNKNOWN)
    return size * payloads.elements if size > 0 and payloads.elements >= 0 else UNKNOWN


@lru_cache(4096)
def _integers(text: str) -> tuple[int, ...]:
    """Return the integers of a list in text; none if the profiler truncated it."""
    return () if "..." in text else tuple(map(int, re.findall(r"\d+", text)))


def _kind(name: str) -> str:
    """Return the kind of collective in a name; empty if it has none, like AMD's kernels, all called *Generic*."""
    return _NAMES.get(_first_group(_KIND, name).replace("_", "").lower(), "")


def _first_group(pattern: re.Pattern[str], name: str) -> str:
    found = pattern.search(name)
    return found[1] if found else ""


def _ready(started: Started) -> npt.NDArray[np.float64]:
    """Return the earliest possible start of each task, by its call and earlier computing, s; [started]."""
    ends = np.maximum.accumulate(np.where(started.computes, started.events.end, -np.inf))
    return np.maximum(started.launch, ends)
