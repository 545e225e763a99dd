"""Collectives in a trace: what was sent, among whom, when it could begin and how long it took."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.explain.iterations import Iterations
from stallpoint.explain.started import Started
from stallpoint.inputs.events import MARK, NOTHING, OPERATOR, UNKNOWN, Events, Message

VALUE_BYTES = {
    "float": 4, "half": 2, "bfloat16": 2, "double": 8, "int": 4, "long": 8, "byte": 1, "char": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "unsigned char": 1, "signed char": 1, "short": 2, "short int": 2,
    "long int": 8,
}  # fmt: skip
"""Bytes of a value by PyTorch's name of its type, in lower case."""
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE = (
    "AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Reduce",
)  # fmt: skip
SEND_RECEIVE, ALL_TO_ALL = "SendRecv", "AllToAll"
ROUNDS = {ALL_REDUCE: 2, BROADCAST: 1, REDUCE: 1, ALL_GATHER: 1, REDUCE_SCATTER: 1}
"""Rounds of a ring for each rank but one."""
_AROUND = re.compile(r"^(?:nccl|rccl|ucc|mpi):\w|^c10d::\w")
"""Marks and operators of torch.distributed around the call that starts a collective."""
_DEPTH = 4
"""How many of them stand within one another."""
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
    """Those of one rank's iterations, in the order of their start; [collectives] each."""

    iteration: npt.NDArray[np.int64]
    """Place of the iteration in which the host started it."""
    kind: tuple[str, ...]
    """As NCCL names its functions, e.g. `ALL_REDUCE`; empty where neither a name nor its arguments tell."""
    requested: npt.NDArray[np.bool_]
    """Whether that is what was asked for, and not a kernel that serves several: send and receive is all-to-all too."""
    algorithm: tuple[str, ...]
    """``RING``, ``TREE``, ...; empty where the name does not tell."""
    protocol: tuple[str, ...]
    """``LL``, ``LL128`` or ``SIMPLE``; empty where the name does not tell."""
    bytes: npt.NDArray[np.int64]
    """What each rank hands in; -1 where the trace does not tell."""
    group_size: npt.NDArray[np.int64]
    """Ranks that take part; -1 where the trace does not tell."""
    group: tuple[str, ...]
    """Name of the process group; empty where the trace does not tell."""
    purpose: tuple[str, ...]
    """What its program says that the group is for; empty where the trace does not tell."""
    ready: npt.NDArray[np.float64]
    """When it could have begun: it was started, and what was started before it had been computed, s."""
    start: npt.NDArray[np.float64]
    """s."""
    seconds: npt.NDArray[np.float64]
    """How long it took, waiting for other ranks included."""
    index: npt.NDArray[np.int64]
    """Place among `Started`."""

    def __len__(self) -> int:
        return len(self.iteration)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Collectives:
        """Some of them."""
        places = np.flatnonzero(chosen)
        some: dict[str, Any] = {
            name: tuple(of[at] for at in places) if isinstance(of, tuple) else of[chosen]
            for name, of in vars(self).items()
        }
        return Collectives(**some)


def collectives(events: Events, started: Started, found: Iterations) -> Collectives:
    """The collectives that were started in one of the iterations."""
    iteration = found.of(started.launch)
    index = np.flatnonzero(started.communicates & (iteration >= 0))
    index = index[np.argsort(started.events.start[index], kind="stable")]
    own = started.events.where(index)
    names, payloads = own.text(own.name), own.each_payload
    around = _around(events, started.launch[index], started.by[index])
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
        algorithm=tuple(_first(_ALGORITHM, name) for name in names),
        protocol=tuple(_first(_PROTOCOL, name) for name in names),
        bytes=np.array(sizes, np.int64),
        group_size=np.array([one.group_size for one in payloads], np.int64),
        group=tuple(one.group for one in payloads),
        purpose=tuple(one.purpose for one in payloads),
        ready=_ready(started)[index],
        start=own.start,
        seconds=own.seconds,
        index=index,
    )


def _around(
    events: Events, moments: npt.NDArray[np.float64], threads: npt.NDArray[np.int32]
) -> list[tuple[str, Message]]:
    """Kind and size by the marks and operators around each of some moments of threads, the innermost that tell them."""
    marks = events.where(np.isin(events.kind, (MARK, OPERATOR)) & events.called(_AROUND))
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


def _bytes(payloads: Message) -> int:
    size = VALUE_BYTES.get(payloads.dtype.lower().removeprefix("c10::"), UNKNOWN)
    return size * payloads.elements if size > 0 and payloads.elements >= 0 else UNKNOWN


def _kind(name: str) -> str:
    """Of AMD's kernels, which all are called *Generic*, only arguments tell the kind; and of an all-to-all, that it is
    no other exchange."""
    return _NAMES.get(_first(_KIND, name).replace("_", "").lower(), "")


def _first(pattern: re.Pattern[str], name: str) -> str:
    found = pattern.search(name)
    return found[1] if found else ""


def _ready(started: Started) -> npt.NDArray[np.float64]:
    """When each could have begun, by what was started before it and computes, [started]."""
    ends = np.maximum.accumulate(np.where(started.computes, started.events.end, -np.inf))
    return np.maximum(started.launch, ends)
