"""Planted pipelines: a stage's trace tells its schedule, its micro-batches, its bubble, and the time of each group."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted_pipelines import BACKWARD, FORWARD, NORM, SUMMED, UPDATE, Pipeline
from planted_traces import in_words

from stallpoint_traces.rank.rank import read_ranks
from stallpoint_traces.trace_answers import explain


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
    idle = pipeline.seconds - UPDATE - NORM - 6 * (FORWARD + BACKWARD)
    assert sent["exposed"] == pytest.approx(idle, rel=1e-3)
    assert sent["waiting"] is None
    # The schedule's bubble, and the transfers that nothing hides.
    assert found["bubble"]["seconds"] < sent["exposed"] + 2 * SUMMED


def test_without_a_pipeline_there_is_no_bubble(tmp_path: Path) -> None:
    trace = Pipeline("1F1B", 2, 6).trace(0)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["args"].get("Process Group Name") != "pp"]
    assert told(tmp_path, trace)["bubble"] is None
