"""Collectives in a trace: what was sent, among whom, when it could begin and how long it took."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.traces.device import Device
from stallpoint.traces.iterations import Iterations
from stallpoint.traces.kineto import CALL, Events

VALUE_BYTES = {
    "float": 4, "half": 2, "bfloat16": 2, "double": 8, "int": 4, "long": 8, "byte": 1, "char": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
"""Bytes of a value by PyTorch's name of its type, in lower case."""
_KIND = re.compile(r"(AllReduce|ReduceScatter|AllGather|Broadcast|SendRecv|Reduce)")
_ALGORITHM = re.compile(r"_(RING|TREE|COLLNET\w*?|NVLS\w*?|PAT)(?:_|\()")
_PROTOCOL = re.compile(r"_(LL128|LL|SIMPLE)(?:_|\()")
ALL_REDUCE = "AllReduce"


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
    needed: npt.NDArray[np.float64]
    """When the kernel that was started next could have begun without it, s; infinite where there was none."""

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


def collectives(events: Events, found: Iterations) -> Collectives:
    """The collectives that were started in one of the iterations and ran on a device."""
    device = Device.of(events)
    launched = _launched(events, device.events)
    sent = device.communicates & np.isfinite(launched)
    iteration = np.searchsorted(found.begin, launched, side="right") - 1
    inside = sent & (iteration >= 0) & (launched < found.end[np.maximum(iteration, 0)])
    own, names = device.events.where(inside), device.events.where(inside).text(device.events.name[inside])
    ready, needed = _around(device, launched, inside)
    sizes = np.array([VALUE_BYTES.get(text.lower(), -1) for text in own.text(own.dtype)], np.int64)
    return Collectives(
        iteration=iteration[inside],
        kind=tuple(_first(_KIND, name) for name in names),
        algorithm=tuple(_first(_ALGORITHM, name) for name in names),
        protocol=tuple(_first(_PROTOCOL, name) for name in names),
        bytes=np.where((sizes > 0) & (own.elements >= 0), sizes * own.elements, -1),
        group_size=own.group_size,
        ready=ready,
        start=own.start,
        seconds=own.seconds,
        needed=needed,
    )


def _first(pattern: re.Pattern[str], name: str) -> str:
    found = pattern.search(name)
    return found[1] if found else ""


def _launched(events: Events, device: Events) -> npt.NDArray[np.float64]:
    """When the host started each event of the device, s; infinite where no call is recorded."""
    calls = events.where((events.kind == CALL) & (events.correlation >= 0))
    order = np.argsort(calls.correlation, kind="stable")
    known, starts = calls.correlation[order], calls.start[order]
    if not len(known):
        return np.full(len(device), np.inf)
    place = np.minimum(np.searchsorted(known, device.correlation), len(known) - 1)
    return np.where(known[place] == device.correlation, starts[place], np.inf)


def _around(
    device: Device, launched: npt.NDArray[np.float64], sent: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Of each event that was `sent`: when it was ready, and when what was started next could have begun without it."""
    computes = np.flatnonzero(device.computes & np.isfinite(launched))
    order = computes[np.argsort(launched[computes], kind="stable")]
    times, ends = launched[order], np.maximum.accumulate(np.append(-np.inf, device.events.end[order]))
    at = np.searchsorted(times, launched[sent])
    ready = np.maximum(launched[sent], ends[at])
    following = np.append(times, np.inf)[at]
    return ready, np.maximum(following, ends[at])
