"""The studies that come along can be started: what their plans ask of a cluster, before anything is measured."""

import re
from pathlib import Path

import pytest
from small_study import ROOT, SCHEMA

from stallpoint.schedule.planning.plan import plan_of
from stallpoint.study.commands import process_of
from stallpoint.study.configuration import load_study
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.study import expand

STUDIES = sorted((ROOT / "config/studies").glob("*.yaml"))
MAX_NODE_HOURS = 2000
MAX_HOURS = 48
MAX_IDLE = 0.25
SMALL = 40
"""Node-hours up to which one job for all numbers of nodes, whose visits are compared in the same minutes, is worth the
nodes that idle in it."""


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_no_shipped_study_is_too_large_for_a_job_or_a_cluster(file: Path, tmp_path: Path) -> None:
    plan = plan_of(expand(load_study(file), SCHEMA), tmp_path / "results", concurrent=True)
    assert plan.node_hours.typical <= MAX_NODE_HOURS
    for job in plan.jobs:
        assert job.seconds.typical <= 3600 * MAX_HOURS, job.name
        assert job.runtime <= 60 * MAX_HOURS, f"{job.name} asks for {job.runtime} min"
    if plan.node_hours.typical > SMALL:
        assert plan.idle_node_hours.typical <= MAX_IDLE * plan.node_hours.typical


def test_a_study_that_builds_on_another_has_its_presets() -> None:
    study = expand(load_study(ROOT / "config/studies/dlbs-small.yaml"), SCHEMA)
    assert study.name == "dlbs-small"
    assert {"caffe-no-nccl", "mxnet-dist-async"} <= set(study.values("sync"))


def test_rates_are_read_where_the_programs_of_dlbs_print_them() -> None:
    """A line of each: tf_cnn_benchmarks with --display_every=1, and MXNet's Speedometer."""
    study = expand(load_study(ROOT / "config/studies/dlbs-programs.yaml"), SCHEMA)
    cells = [cell for cell in study.cells.values() if isinstance(cell, CommandCell)]
    printed = {
        "tensorflow-alexnet": "12\timages/sec: 2301.6 +/- 14.9 (jitter = 48.2)\t7.200",
        "mxnet-alexnet": "INFO:root:Epoch[0] Batch [11-12]\tSpeed: 2301.60 samples/sec\taccuracy=0.001953",
    }
    for cell in cells:
        found = re.search(cell.rate, printed[cell.network])
        assert found
        assert float(found["rate"]) == 2301.6
    (two,) = [cell for cell in cells if (cell.network, cell.ranks, cell.scaling) == ("mxnet-alexnet", 2, "weak")]
    assert [process_of(two, rank, "node0", 29500) is not None for rank in (0, 1)] == [True, False], "one for all GPUs"
    process = process_of(two, 0, "node0", 29500)
    assert process
    assert "--gpus $(seq -s , 0 $((2 - 1))) --batch-size 256 " in process.arguments[-1]


def test_compression_is_judged_by_throughput_and_accuracy_within_twenty_minutes(tmp_path: Path) -> None:
    study = expand(load_study(ROOT / "config/studies/compression-small.yaml"), SCHEMA)
    (job,) = plan_of(study, tmp_path / "results", concurrent=True).jobs
    assert job.runtime <= 20
    compressed = {"sixteen-bit", "eight-bit", "top-k", "ddp-powersgd"}
    for kind in ("train", "convergence"):
        assert compressed <= {getattr(cell, "sync", "") for cell in study.cells.values() if cell.kind == kind}, kind
