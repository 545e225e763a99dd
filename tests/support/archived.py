"""A small study whose records hold names of users and nodes and absolute paths, and archives of it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from whole_records import measured

from stallpoint.archive.making import make_archive
from stallpoint.measure.recorder import Recorder
from stallpoint.records.parquet import write_cell
from stallpoint.records.tables import COLLECTIVES, ENVIRONMENTS, RUNS, SLURM_JOBS
from stallpoint.study.cells import Cell
from stallpoint.study.collect import collect
from stallpoint.study.job_kind import run_row
from stallpoint.study.kinds import kind_of
from stallpoint.study.study import Study, expand

ROOT = Path(__file__).parents[2]
SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
USER, NODES, SUBNET = "qzjdoe", ("qzgpu9.zuse.example", "qzgpu10.zuse.example"), "203.0.113.0/24"
SECRETS = (USER, "qzgpu9", "qzgpu10", "zuse", "qzscratch", "qzhome", "203.0.113")
"""What must not be found anywhere."""
STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CONFIG: dict[str, Any] = {
    "study": "secret",
    "hardware": {"cpu": {"device": "cpu", "nodes": 2}},
    "storage": {"disk": {"path": f"/qzscratch/{USER}/images", "format": "files"}},
    "matrix": [
        {"network": "alexnet", "hardware": "cpu", "nodes": [1, 2], "batch": 4, "storage": "disk", "scaling": "strong"}
    ],
    "collectives": {"samples": 2},
}
TABLES = "results/secret/tables"
DRAWN = [f"{TABLES}/{table.name}.parquet" for table in (RUNS, ENVIRONMENTS, SLURM_JOBS)]
ACCOUNT = {
    "slurm_job_id": "17", "partition": "gpu", "state": "COMPLETED", "exit_code": "0:0", "reason": "",
    "submitted": "", "started": "", "ended": "", "elapsed": 60, "nodes": 2, "node_hours": 2 / 60, "cpus": 8,
    "cpu_time": 480, "energy": None, "requested": "cpu=8", "allocated": "cpu=8", "time_limit": "01:00:00",
    "node_list": "qzgpu[9-10].zuse.example,qzgpu9.zuse.example",
}  # fmt: skip


@contextmanager
def inside(folder: Path) -> Iterator[Path]:
    """Work in `folder`, as programs of the workflow work where the results are."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield folder
    finally:
        os.chdir(before)


def study_of(**changes: Any) -> Study:
    return expand({**CONFIG, **changes}, SCHEMA)


def measure(study: Study, fails: str = COLLECTIVES.name) -> None:
    """Write records of every cell, full of names; cells of kind `fails` could not run."""
    for path, cell in study.cells.items():
        folder = Path("results", study.name, "raw", path)
        reason = f"no room in {Path.cwd()}/x.py, said {USER}@qzgpu9: /qzhome/{USER}/y.py"
        failure = reason if cell.kind == fails else ""
        run = run_row(cell, STARTED, failure=failure)
        write_cell(folder, {RUNS.name: [{**run, "duration": 2.5}], **({} if failure else _environments(cell))})


def _environments(cell: Cell) -> dict[str, Any]:
    recorders = [Recorder(cell, rank) for rank in range(cell.ranks)]
    for rank, recorder in enumerate(recorders):
        recorder.add(
            ENVIRONMENTS, node=NODES[rank], device="cpu", cpu_model="made-up CPU", gpu_model="", cores_available=1,
            threads=1, load_average=0.0, core_cache_bytes=2**20, cache_bytes=2**25, memory_bytes=2**33,
            available_memory=2**33, gpu_available_memory=None,
            kernel="Linux 6", python="3.11.7", torch="2.13.0",
            cpu_nominal_clock=2.5e9, cpu_max_clock=None, gpu_max_clock=None, cuda="", cudnn="", nccl="", driver="",
            blas="MKL 2024.2", onednn="3.5.3", cudnn_in_force=False, onednn_in_force=True, precision_in_force="float32",
            mpi4py="4.1", mpi_library=f"Open MPI v5, package: Open MPI {USER}@qzgpu10 Distribution", mpi_parameters="",
            interface="ib0", subnet=SUBNET,
            stallpoint="0.1.0", git_commit="", git_dirty=False, slurm_job_id="17",
        )  # fmt: skip
    job = {"slurm_job_id": "17", "partition": "gpu", "nodes": 2, "tasks": 2, "cpus_per_task": 4, "cpus": 8,
           "requested": "cpu=8", "time_limit": "1:00", "submitted": "", "started": "",
           "node_list": ",".join(NODES)}  # fmt: skip
    recorders[0].add(SLURM_JOBS, **job)
    environments = [row for recorder in recorders for row in recorder.arrow(ENVIRONMENTS).to_pylist()]
    own = {ENVIRONMENTS.name: environments, SLURM_JOBS.name: recorders[0].arrow(SLURM_JOBS)}
    rest = [one for one in kind_of(cell).tables[1:] if one.name not in own and one not in kind_of(cell).optional_tables]
    return {**{table.name: measured(cell, table) for table in rest}, **own}


def draw(folder: Path = Path()) -> None:
    """The tables that hold names, from the records below `folder`."""
    records = sorted((folder / "results/secret/raw").rglob("repeat~*"))
    for table in (RUNS, ENVIRONMENTS, SLURM_JOBS):
        collect(table, records, folder / f"{TABLES}/{table.name}.parquet")


def results(study: Study, fails: str = COLLECTIVES.name) -> None:
    """Everything that the archive of a study needs, as a run would have left it; `fails`: as `measure`."""
    measure(study, fails)
    draw()
    for name, text in (("report.html", "<p>report</p>"), ("conclusions.json", "{}"), ("conclusions.md", "")):
        Path("results", study.name, name).write_text(text)


def archive(study: Study, target: Path, accounts: Sequence[dict[str, Any]] = (ACCOUNT,)) -> dict[str, list[str]]:
    return make_archive(
        study, target, workflow=ROOT, users=[USER], accounts=accounts, drawn_files=DRAWN, draw_results=draw
    )  # fmt: skip
