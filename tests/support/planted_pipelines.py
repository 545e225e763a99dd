"""Planted pipelines: a trace of each stage, as its schedule runs it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

from planted_traces import Events, sent

FORWARD, BACKWARD, SENT, UPDATE, SUMMED, NORM = 2e-3, 4e-3, 0.1e-3, 1e-3, 0.5e-3, 0.02e-3
"""Seconds: a pass of one micro-batch through a chunk, one message, the update, all-reduces of a tensor group and of the
gradients' norm."""
Pass = tuple[str, int, int]
"""``F`` or ``B``, stage from 0 over all chunks, micro-batch."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline of equal stages; each pass begins as soon as its stage is free and what it needs has come."""

    schedule: str
    stages: int
    micro_batches: int
    chunks: int = 1
    part: float = 1.0
    """Of a pass's usual duration."""
    noise: float = 0.0
    """Relative deviation of passes."""
    slow: dict[int, float] = field(default_factory=dict)
    """Factor of the passes of a stage."""

    def lasts(self, one: Pass) -> float:
        """Duration of a pass, s."""
        usual = self.part * self.slow.get(one[1], 1.0) * (FORWARD if one[0] == "F" else BACKWARD)
        return usual * (1 + self.noise * random.Random(str(one)).gauss(0, 1))

    @property
    def last(self) -> int:
        """Last stage over all chunks."""
        return self.stages * self.chunks - 1

    def order(self, stage: int) -> list[Pass]:
        """Passes of a stage, as Megatron-LM orders them."""
        p, m, v = self.stages, self.micro_batches, self.chunks
        counts = range(m * v)
        forward = [("F", (at // p % v) * p + stage, at // (p * v) * p + at % p) for at in counts]
        backward = [("B", (v - 1 - at // p % v) * p + stage, at // (p * v) * p + at % p) for at in counts]
        warm = {"GPipe": m, "1F1B": p - stage - 1, "interleaved": 2 * (p - stage - 1) + (v - 1) * p}[self.schedule]
        warm = min(warm, m * v)
        rest = chain.from_iterable(zip_longest(forward[warm:], backward))
        return [*forward[:warm], *(one for one in rest if one is not None)]

    def starts(self) -> dict[Pass, float]:
        """Start of each pass, s."""
        ends: dict[Pass, float] = {}
        starts: dict[Pass, float] = {}
        waiting = {stage: self.order(stage) for stage in range(self.stages)}
        free = dict.fromkeys(waiting, 0.0)
        while any(waiting.values()):
            for stage, passes in waiting.items():
                while passes and all(one in ends for one in self.needs(passes[0])):
                    one = passes.pop(0)
                    ready = [ends[other] + SENT * (other[1] != one[1]) for other in self.needs(one)]
                    starts[one] = max([free[stage], *ready])
                    ends[one] = free[stage] = starts[one] + self.lasts(one)
        return starts

    def needs(self, one: Pass) -> Iterator[Pass]:
        kind, stage, batch = one
        if kind == "F" and stage:
            yield "F", stage - 1, batch
        if kind == "B":
            yield "F", stage, batch
            if stage < self.last:
                yield "B", stage + 1, batch

    def trace(self, stage: int, iterations: int = 3) -> dict[str, Any]:
        """Trace of a stage: its passes, and kernels that receive from when the stage is free."""
        return self.make(stage, stage, iterations).trace()

    def make(self, stage: int, rank: int, iterations: int = 3) -> Events:
        """Return the events of a rank of a stage, which has two."""
        made, starts, long = Events(rank, 2 * self.stages), self.starts(), self.seconds
        for index in range(iterations):
            begin = 1.0 + index * long
            free = begin
            for one in self.order(stage):
                start, seconds = begin + starts[one], self.lasts(one)
                if any(other[1] != one[1] for other in self.needs(one)):
                    waits = max(0.0, start - free)
                    told = sent("recv", "pp", self.stages, purpose="pp")
                    made.kernel("ncclDevKernel_SendRecv(x)", free, waits, 21, 1e-6, **told)
                if one[0] == "B":
                    made.backward(start, seconds / 2)
                made.kernel("gemm", start, seconds - SUMMED)
                free = start + seconds
                # The host is ahead: it asks for sums and sends before the next pass begins.
                early, told = seconds - SUMMED - 1e-6, sent("allreduce", "tp", 2, purpose="tp")
                made.kernel("ncclDevKernel_AllReduce(x)", free - SUMMED, SUMMED, 22, early, **told)
                if 0 < one[1] < self.last or one[1] == (0 if one[0] == "F" else self.last):
                    told = sent("send", "pp", self.stages, purpose="pp")
                    made.kernel("ncclDevKernel_SendRecv(x)", free, SENT, 23, 1e-6, **told)
            # The gradients' norm waits for the stage that ends last.
            told = sent("allreduce", "world", 2 * self.stages, 1)
            made.kernel("ncclDevKernel_AllReduce(x)", free, begin + long - UPDATE - free, 22, 1e-6, **told)
            made.step(index, begin, long, UPDATE)
        return made

    @property
    def seconds(self) -> float:
        """Duration of an iteration."""
        return max(start + self.lasts(one) for one, start in self.starts().items()) + NORM + UPDATE
