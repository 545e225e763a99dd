"""Traces of made-up training in Kineto's form, of which everything is known."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stallpoint_traces.trace_words import findings

ALPHA, BETA = 10e-6, 0.1e-9
"""Latency of a round [s] and time of a byte [s/B] of the ring that all-reduces go round."""
CALL = 0.01
"""Between two calls, µs."""


@dataclass
class Planted:
    """A data-parallel training: each iteration loads, computes forward, computes backward and sends beside, updates.

    Times in s. Messages are as many as `message_bytes`, each ready after an equal part of the backward pass. With
    tensor and pipeline parallelism activations are summed after the forward pass, sent on to the next stage, and summed
    again before the backward pass; `within` may say other collectives of a replica's ranks.
    """

    workers: int = 4
    """Replicas of the model; ranks if each has one."""
    each: int = 1
    """Ranks of a replica."""
    model_parallel: float = 0.0
    """What each collective within a replica takes."""
    within: tuple[tuple[str, str], ...] = (("AllReduce", "tp"), ("SendRecv", "pp"), ("AllReduce", "tp"))
    """Kind and group of what a replica's ranks send to each other; a reduce-scatter goes after the backward pass."""
    within_elements: int = 1_000_000
    purposes: tuple[str, str, str] = ("", "", "")
    """What its program says of the groups for gradients, sums of activations, and stages."""
    clock: float = 0.0
    """What the rank's clock shows more than the first one's."""
    rank: int = 1
    iterations: int = 5
    loading: float = 2e-3
    forward: float = 6e-3
    backward: float = 12e-3
    update: float = 1e-3
    message_bytes: tuple[int, ...] = (40_000_000, 20_000_000, 4_000, 60_000_000)
    waits: float = 0.0
    """What the first message of an iteration waits for other ranks."""
    synchronises: bool = True
    """The host waits for the device at the end of each iteration."""
    beta: float = BETA
    backward_marked: bool = True
    """The host's operators are in the trace."""
    marked: bool = True
    sized: bool = True
    events: list[dict[str, Any]] = field(default_factory=list)
    _called: float = 0.0

    def message(self, size: int, workers: int | None = None) -> float:
        """All-reduce around a ring, s."""
        p = workers or self.workers
        return 2 * (p - 1) * (ALPHA + self.beta * size / p)

    def exposed(self, workers: int | None = None) -> float:
        """What of the messages comes after the backward pass, s."""
        each, end = self.backward / max(1, len(self.message_bytes)), 0.0
        for place, size in enumerate(self.message_bytes, start=1):
            waits = self.waits if place == 1 else 0.0
            end = max(end, place * each) + (0.0 if workers == 1 else waits + self.message(size, workers))
        return max(0.0, end - self.backward)

    def seconds(self, workers: int | None = None) -> float:
        """An iteration."""
        last = self.model_parallel if self.scatters else 0.0
        before = 3 * self.model_parallel - last
        after = max(last, self.exposed(workers))
        return self.loading + self.forward + before + self.backward + after + self.update

    @property
    def scatters(self) -> bool:
        """Whether gradients are scattered after the backward pass."""
        return self.within[-1][0] == "ReduceScatter"

    def trace(self) -> dict[str, Any]:
        """The trace of the rank."""
        self.events, self._called = [], 0.0
        now = 1000.0 + 1e6 * self.clock  # µs do not begin at 0
        self._called = now
        for step in range(self.iterations):
            begin = now
            if self.marked:
                self._add("user_annotation", f"ProfilerStep#{step}", begin, self.seconds())
            self._add("user_annotation", "enumerate(DataLoader)#_Iter.__next__", begin, self.loading)
            now += self.loading * 1e6
            each = self.backward / max(1, len(self.message_bytes))
            free = now
            self._kernel("forward_gemm", now, now, self.forward, stream=7)
            now += self.forward * 1e6
            if self.model_parallel:
                first, second, last = self.within
                now = self._within(*first, now, self.purposes[1])
                now = self._within(*second, now, self.purposes[2])
                self._add("cpu_op", "autograd::engine::evaluate_function: Sum", now, 1e-6)
                if not self.scatters:
                    now = self._within(*last, now, self.purposes[1])
            for place, size in enumerate(self.message_bytes):
                if self.backward_marked:
                    self._add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", now, each / 2)
                self._kernel("backward_gemm", now, now, each, stream=7)
                now += each * 1e6
                self._call("cudaStreamWaitEvent", now)
                seconds = self.message(size) + (self.waits if place == 0 else 0.0)
                free = max(free, now)
                self._kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", now, free, seconds, stream=20, size=size)
                free += seconds * 1e6
            if self.scatters:
                now = self._within(*self.within[-1], now, self.purposes[1])
            self._call("cudaStreamWaitEvent", now)
            self._kernel("optimizer", now, max(now, free), self.update, stream=7)
            if self.synchronises:
                self._call("cudaDeviceSynchronize", now, until=begin + self.seconds() * 1e6)
            now = begin + self.seconds() * 1e6
        return self._whole()

    def _whole(self) -> dict[str, Any]:
        info = {"backend": "nccl", "rank": self.rank, "world_size": self.workers * self.each}
        return {"schemaVersion": 1, "distributedInfo": info, "traceEvents": self.events, "traceName": "planted"}

    def write(self, path: Path, **how: Any) -> Path:
        """Write it, gzip'd where the name says so."""
        self.trace()
        return self.write_events(path, **how)

    def write_events(self, path: Path, **how: Any) -> Path:
        """Write it as it is by now."""
        text = json.dumps(self._whole(), **how)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path

    def _add(self, category: str, name: str, start: float, seconds: float, **args: Any) -> None:
        event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 2, "ts": start, "dur": seconds * 1e6}
        self.events.append({**event, "args": {"Input Dims": [[1, 2], []], "nested": [{"a": {}}, {}], **args}})

    def _within(self, kind: str, group: str, now: float, purpose: str) -> float:
        """Send something within a replica, for which the device waits; when that has ended."""
        self._call("cudaStreamWaitEvent", now)
        told = {
            "Collective name": kind.lower(), "In msg nelems": self.within_elements, "Group size": 2, "dtype": "Float",
            "Process Group Name": group, "Process Group Description": purpose,
        }  # fmt: skip
        self._kernel(f"ncclDevKernel_{kind}(x)", now, now, self.model_parallel, stream=21, **told)
        now += self.model_parallel * 1e6
        self._call("cudaStreamWaitEvent", now)
        return now

    def _call(self, name: str, start: float, until: float | None = None, **args: Any) -> None:
        """A call of the host, which does one thing after the other."""
        self._called = max(start, self._called + CALL)
        self._add("cuda_runtime", name, self._called, 0.0 if until is None else (until - self._called) / 1e6, **args)

    def _kernel(self, name: str, launch: float, start: float, seconds: float, stream: int, size: int = -1,
                **others: Any) -> None:  # fmt: skip
        correlation = len(self.events) + 100
        self._call("cudaLaunchKernel", launch, correlation=correlation)
        told = {
            "Collective name": "allreduce",
            "In msg nelems": size // 4,
            "Group size": self.workers,
            "dtype": "Float",
        }
        more = told | {"Process Group Name": "dp", "Process Group Description": self.purposes[0]}
        more = (more if size >= 0 and self.sized else {}) | others
        self._add("kernel", name, start, seconds, stream=stream, correlation=correlation, device=0, **more)


@dataclass
class Events:
    """Events of a rank by their times in s, with which a test plants a schedule of its own."""

    rank: int = 0
    workers: int = 1
    events: list[dict[str, Any]] = field(default_factory=list)

    def add(self, category: str, name: str, start: float, seconds: float, **args: Any) -> None:
        """Add an event."""
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": args.get("stream", 2),
                            "ts": 1e6 * start, "dur": 1e6 * seconds, "args": args})  # fmt: skip

    def kernel(self, name: str, start: float, seconds: float, stream: int = 7, early: float = 0.0, **args: Any) -> None:
        """Add a kernel and the call that started it, `early` before it began."""
        correlation = len(self.events) + 1
        self.add("cuda_runtime", "cudaLaunchKernel", start - early, 1e-7, correlation=correlation)
        self.add("kernel", name, start, seconds, stream=stream, correlation=correlation, **args)

    def step(self, number: int, start: float, seconds: float, update: float) -> None:
        """Add an iteration's mark, and its end: the update, for which the host waits."""
        self.add("user_annotation", f"ProfilerStep#{number}", start, seconds)
        self.kernel("adam", start + seconds - update, update)
        self.add("cuda_runtime", "cudaDeviceSynchronize", start + seconds - update / 2, update / 2)

    def backward(self, start: float, seconds: float) -> None:
        """Mark an operator of the backward pass."""
        self.add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", start, seconds)

    def trace(self) -> dict[str, Any]:
        """Return the trace."""
        return {"distributedInfo": {"rank": self.rank, "world_size": self.workers}, "traceEvents": self.events}

    def write(self, folder: Path) -> Path:
        """Write the trace, named by its rank."""
        path = folder / f"rank{self.rank}.json"
        path.write_text(json.dumps(self.trace()))
        return path


def in_words(explained: Sequence[dict[str, Any]]) -> str:
    """All that `stallpoint explain` says of traces."""
    return "\n".join(
        text for finding in findings(explained) for text in (finding.sentence, *(text for _, text in finding.parts))
    )


def sent(kind: str, group: str, size: int, elements: int = 1000, purpose: str = "", **args: Any) -> dict[str, Any]:
    """Return a collective's arguments; those beyond are named as `torch.profiler` does, with _ for spaces."""
    more = {name.replace("_", " "): value for name, value in args.items()}
    return {"Collective name": kind, "In msg nelems": elements, "dtype": "Float", "Group size": size,
            "Process Group Name": group, "Process Group Description": purpose, **more}  # fmt: skip
