"""Planted pipelines: a stage's trace tells its schedule, its micro-batches, its bubble, and the time of each group."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest
from planted_traces import Events, sent

from stallpoint.explain.rank import read_ranks
from stallpoint.explain.trace_answers import explain, in_words

FORWARD, BACKWARD, SENT, UPDATE, SUMMED = 2e-3, 4e-3, 0.1e-3, 1e-3, 0.5e-3
"""Seconds: a pass of one micro-batch through a chunk, one message, the update, an all-reduce of a tensor group."""
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

    def lasts(self, one: Pass) -> float:
        """Duration of a pass, s."""
        usual = self.part * (FORWARD if one[0] == "F" else BACKWARD)
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
        made, starts, long = Events(stage, 2 * self.stages), self.starts(), self.seconds
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
            made.step(index, begin, long, UPDATE)
        return made.trace()

    @property
    def seconds(self) -> float:
        """Duration of an iteration."""
        return max(start + self.lasts(one) for one, start in self.starts().items()) + UPDATE


def told(folder: Path, trace: dict[str, Any]) -> dict[str, Any]:
    path = folder / "rank0.json"
    path.write_text(json.dumps(trace))
    (found,) = explain(read_ranks([path]))
    return found


@pytest.mark.parametrize("stage", [0, 3])
@pytest.mark.parametrize(
    "pipeline",
    [Pipeline("GPipe", 4, 8), Pipeline("1F1B", 4, 8), Pipeline("interleaved", 4, 8, chunks=2)],
    ids=lambda one: one.schedule,
)
def test_a_stage_tells_schedule_micro_batches_and_bubble(pipeline: Pipeline, stage: int, tmp_path: Path) -> None:
    found = told(tmp_path, pipeline.trace(stage))
    bubble = found["bubble"]
    assert (bubble["schedule"], bubble["pipeline_stages"]) == (pipeline.schedule, 4)
    assert bubble["passes"] == 8 * pipeline.chunks
    assert bubble["seconds"] == pytest.approx(3 * (FORWARD + BACKWARD), rel=1e-3)
    assert found["iteration_seconds"] == pytest.approx(pipeline.seconds, rel=1e-3)
    assert pipeline.schedule in in_words([found])


@pytest.mark.parametrize("pipeline", [Pipeline("GPipe", 2, 8), Pipeline("1F1B", 4, 8)], ids=lambda one: one.schedule)
def test_twice_as_many_micro_batches_or_stages_are_predicted_from_passes_of_uneven_length(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    bubble = told(tmp_path, replace(pipeline, noise=0.05).trace(1, iterations=2))["bubble"]
    finer = replace(pipeline, micro_batches=2 * pipeline.micro_batches, part=0.5)
    deeper = replace(pipeline, stages=2 * pipeline.stages, part=0.5)
    assert bubble["twice_as_many"] == pytest.approx(finer.seconds, rel=0.05)
    assert bubble["twice_the_pipeline"] == pytest.approx(deeper.seconds, rel=0.05)


def test_the_time_of_each_group_is_exposed_or_hidden(tmp_path: Path) -> None:
    pipeline = Pipeline("1F1B", 2, 6)
    found = told(tmp_path, pipeline.trace(0))
    by_name = {group["name"]: group for group in found["groups"]}
    assert by_name["pp"]["parallelism"] == "pipeline"
    (tensor,), (sent,) = (by_name[name]["collectives"] for name in ("tp", "pp"))
    assert (tensor["kind"], tensor["per_iteration"]) == ("AllReduce", 12)
    assert tensor["seconds"] == pytest.approx(12 * SUMMED, rel=1e-3)
    assert tensor["exposed"] == pytest.approx(12 * SUMMED, rel=1e-3)
    idle = pipeline.seconds - UPDATE - 6 * (FORWARD + BACKWARD)
    assert sent["exposed"] == pytest.approx(idle, rel=1e-3)
    assert sent["waiting"] is None
    # The schedule's bubble, and the transfers that nothing hides.
    assert found["bubble"]["seconds"] < sent["exposed"] + 2 * SUMMED


def test_without_a_pipeline_there_is_no_bubble(tmp_path: Path) -> None:
    trace = Pipeline("1F1B", 2, 6).trace(0)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["args"].get("Process Group Name") != "pp"]
    assert told(tmp_path, trace)["bubble"] is None
