"""Collectives in a trace: what was sent, among whom, when it could begin and how long it took."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.traces.iterations import Iterations
from stallpoint.traces.started import Started

VALUE_BYTES = {
    "float": 4, "half": 2, "bfloat16": 2, "double": 8, "int": 4, "long": 8, "byte": 1, "char": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
"""Bytes of a value by PyTorch's name of its type, in lower case."""
_KIND = re.compile(r"(All_?Reduce|Reduce_?Scatter|All_?Gather|Broadcast|Send_?Recv|All_?to_?all|Reduce)", re.IGNORECASE)
_ALGORITHM = re.compile(r"_(RING|TREE|COLLNET\w*?|NVLS\w*?|PAT)(?:_|\()")
_PROTOCOL = re.compile(r"_(LL128|LL|SIMPLE)(?:_|\()")
ALL_REDUCE = "AllReduce"
_NAMES = {"alltoall": "SendRecv"} | {
    name.lower(): name for name in (ALL_REDUCE, "ReduceScatter", "AllGather", "Broadcast", "SendRecv", "Reduce")
}


@dataclass(frozen=True)
class Collectives:
    """Those of one rank's iterations, in the order of their start; [collectives] each."""

    iteration: npt.NDArray[np.int64]
    """Place of the iteration in which the host started it."""
    kind: tuple[str, ...]
    """As NCCL names its kernels, e.g. `ALL_REDUCE`; empty where the name does not tell."""
    algorithm: tuple[str, ...]
    """``RING``, ``TREE``, ...; empty where the name does not tell."""
    protocol: tuple[str, ...]
    """``LL``, ``LL128`` or ``SIMPLE``; empty where the name does not tell."""
    bytes: npt.NDArray[np.int64]
    """What each rank hands in; -1 where the trace does not tell."""
    group_size: npt.NDArray[np.int64]
    """Ranks that take part; -1 where the trace does not tell."""
    ready: npt.NDArray[np.float64]
    """When it could have begun: it was started, and what was started before it had been computed, s."""
    start: npt.NDArray[np.float64]
    """s."""
    seconds: npt.NDArray[np.float64]
    """How long it took, waiting for other ranks included."""
    place: npt.NDArray[np.int64]
    """Place among `Started`."""

    def __len__(self) -> int:
        return len(self.iteration)

    def among(self, workers: int) -> npt.NDArray[np.bool_]:
        """Which of them all of so many workers take part in, as far as the trace tells; [collectives]."""
        return np.asarray((self.group_size == workers) | (self.group_size < 0))

    def where(self, chosen: npt.NDArray[np.bool_]) -> Collectives:
        """Some of them."""
        places = np.flatnonzero(chosen)
        some: dict[str, Any] = {
            name: tuple(of[at] for at in places) if isinstance(of, tuple) else of[chosen]
            for name, of in vars(self).items()
        }
        return Collectives(**some)


def collectives(started: Started, found: Iterations) -> Collectives:
    """The collectives that were started in one of the iterations."""
    iteration = found.of(started.launch)
    place = np.flatnonzero(started.communicates & (iteration >= 0))
    place = place[np.argsort(started.events.start[place], kind="stable")]
    own = started.events.where(place)
    names = own.text(own.name)
    types = [text.lower().removeprefix("c10::") for text in own.text(own.dtype)]
    sizes = np.array([VALUE_BYTES.get(name, -1) for name in types], np.int64)
    return Collectives(
        iteration=iteration[place],
        kind=tuple(_NAMES.get(_first(_KIND, name).replace("_", "").lower(), "") for name in names),
        algorithm=tuple(_first(_ALGORITHM, name) for name in names),
        protocol=tuple(_first(_PROTOCOL, name) for name in names),
        bytes=np.where((sizes > 0) & (own.elements >= 0), sizes * own.elements, -1),
        group_size=own.group_size,
        ready=_ready(started)[place],
        start=own.start,
        seconds=own.seconds,
        place=place,
    )


def _first(pattern: re.Pattern[str], name: str) -> str:
    found = pattern.search(name)
    return found[1] if found else ""


def _ready(started: Started) -> npt.NDArray[np.float64]:
    """When each could have begun, by what was started before it and computes, [started]."""
    ends = np.maximum.accumulate(np.where(started.computes, started.events.end, -np.inf))
    return np.maximum(started.launch, ends)
