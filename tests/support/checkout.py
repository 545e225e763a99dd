"""A checkout of the workflow in a folder of its own, and Snakemake run in it: what tests of whole studies share."""

import compileall
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import forked
import little
import numpy as np
import yaml

from stallpoint.loops import MIN_COMPILED_STEPS
from stallpoint.models.taskgraph import Kind, Task, schedule
from stallpoint.report.charts.web_page import libraries

ROOT = Path(__file__).parents[2]
ON_SLURM = (
    "--profile", "slurm", "--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1",
)  # fmt: skip
"""Options of Snakemake for the test cluster, where a study is small: jobs that have ended are soon noticed."""
IMPATIENT = (sys.executable, "-P", str(Path(__file__).with_name("impatient.py")))
"""Snakemake that follows them throughout."""
PATIENT_MINUTES = 120
"""Minutes that a job in a checkout asks for at least: on a busy machine it takes longer than its plan says."""
WRITTEN = (".*", "*.pyc.*", "*.tmp.*")
"""Names of files that the library, Python and Numba are still writing."""
PARTS = ("Snakefile", "workflow", "scripts", "profiles", "slurm", "config", "resources", "examples", "src")


@dataclass(frozen=True)
class Ran:
    """How a Snakemake call ended."""

    status: int
    text: str
    """stdout and stderr, as they came."""

    @property
    def jobs(self) -> dict[str, int]:
        """Planned jobs by rule."""
        table = re.search(r"^job +count\n[- ]+\n(.*?)^total ", self.text, re.MULTILINE | re.DOTALL)
        return {name: int(count) for name, count in map(str.split, table[1].splitlines())} if table else {}


@cache
def compile_once() -> None:
    """Compile the library, the kernel of `schedule` and what pages embed here: each checkout is copied with that."""
    source = os.open(ROOT / "src", os.O_RDONLY)
    fcntl.flock(source, fcntl.LOCK_EX)  # two lanes that begin together compile once
    compileall.compile_dir(ROOT / "src", quiet=1)
    if not [*(ROOT / "src").rglob("*.nbi")]:
        schedule([Task("step", Kind.COMPUTE, "compute", np.ones(1 + MIN_COMPILED_STEPS))])
    libraries()
    os.close(source)


class Checkout:
    """A copy of the workflow with one study; what was compiled of its code comes along, as in any checkout in use.

    Products that tell about the machine are `little` there.
    """

    said = ""
    """What its first whole run said, where it had one."""

    def __init__(self, folder: Path, study: dict[str, Any]) -> None:
        self.folder = folder
        compile_once()
        for part in PARTS:
            source = ROOT / part
            if source.is_dir() and not source.is_symlink():
                # Other tests may import or compile meanwhile: each such file is first written under another name.
                shutil.copytree(source, folder / part, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*WRITTEN))
            else:
                shutil.copy(source, folder / part, follow_symlinks=False)
        for module, added in (
            ("measure/constants", little.source()),
            ("schedule/planning/plan", f"\nMIN_MINUTES = {PATIENT_MINUTES}\n"),
            ("report/charts/render", "\nDOTS_PER_INCH = 36  # a third of the time of drawing all charts\n"),
        ):
            file = folder / f"src/stallpoint/{module}.py"
            file.write_text(file.read_text() + added)
            # On a disk that is full, Python would write a part of it, and take that for the whole the next time.
            compileall.compile_file(file, quiet=1)
        (folder / "elsewhere.csv").write_text(ELSEWHERE)
        (folder / "claims.yaml").write_text(CLAIMS)
        (folder / "mine.py").write_text(little.NETWORK)
        self.study = study
        self.write_study()

    @property
    def library(self) -> str:
        """Where modules are looked for first."""
        return str(self.folder / "src")

    def write_study(self, **changes: Any) -> None:
        """Write the study, with some entries changed."""
        (self.folder / "config/config.yaml").write_text(yaml.safe_dump({**self.study, **changes}))

    def snakemake(self, *arguments: str) -> Ran:
        """Run Snakemake and what it starts with the library that is here, as copies of a process (`forked`)."""
        variables = {} if "slurm" in arguments else forked.environment(self.library)
        with self.start_snakemake(*arguments, **variables) as process:
            text, _ = process.communicate()
        return Ran(process.returncode, text)

    def run_snakemake(self, *arguments: str) -> Ran:
        """Run Snakemake as a user would, in processes of their own."""
        with self.start_snakemake(*arguments) as process:
            text, _ = process.communicate()
        return Ran(process.returncode, text)

    def start_snakemake(
        self,
        *arguments: str,
        said: int | IO[str] = subprocess.PIPE,
        own_session: bool = False,
        through: Sequence[str] = (),
        **variables: str,
    ) -> subprocess.Popen[str]:
        """Start Snakemake as a user would, by a command that it is `through`; what it says goes to `said`."""
        program = IMPATIENT if "slurm" in arguments else [str(Path(sys.executable).with_name("snakemake"))]
        return subprocess.Popen(
            [*through, *program, "--nocolor", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": self.library, **variables},
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=own_session,
        )

    def take_pictures(self, other: "Checkout") -> None:
        """Take exhibits of papers from another study, and empty charts: drawing them takes longer than all else."""
        self.results("figures").mkdir(exist_ok=True)
        for chart in other.results("figures").glob("*.svg"):
            self.results("figures", chart.name).touch()
        tables = self.folder / "results/paper_figures"
        shutil.copytree(other.folder / "results/paper_figures", tables, copy_function=shutil.copy, dirs_exist_ok=True)
        known = shutil.ignore_patterns(".snakemake_timestamp")
        shutil.copytree(other.results("papers"), self.results("papers"), ignore=known, copy_function=shutil.copy)
        for paper in self.results("papers").iterdir():
            os.utime(paper)

    def results(self, *parts: str) -> Path:
        """A path below the study's results."""
        return self.folder.joinpath("results", self.study["study"], *parts)


ELSEWHERE = """series,workers,workers_per_node,samples_per_second
made up,1,4,100
made up,2,4,195
made up,4,4,385
made up,8,4,740
made up,16,4,1460
"""
"""The external table of the tiny study."""
OWN_NETWORK = {"mine": {"build": "mine.py:build", "image_size": 8}}
"""A network that is trained in next to no time, for ``networks`` of a study."""
WAITING = """
import os
import time

from torch import nn


class Waiting(nn.Module):
    '''While the file `wait` is there, the second call lasts.'''

    calls = 0

    def forward(self, values):
        Waiting.calls += 1
        while Waiting.calls > 1 and os.path.exists("wait"):
            time.sleep(0.05)
        return values


def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10), Waiting())
"""
"""The same network, whose second call in a process lasts while the file ``wait`` is there."""
CLAIMS = """paper: a colleague
claims:
  - {id: it-is-worth-it, sentence: It is worth it., missing: no table says what it is worth}
"""
"""The file of claims of the tiny study."""

BLOCK: dict[str, Any] = {
    "network": "alexnet", "hardware": "local", "nodes": [1, 2], "batch": 2, "storage": "jpeg",
    "scaling": ["strong", "compute"], "sync": "wfbp",
}  # fmt: skip
TINY: dict[str, Any] = {
    "study": "tiny", "seed": 1, "visits": 1, "precision": 0, "iterations": 2, "warmup": 1,
    "hardware": {"local": {"device": "cpu", "nodes": 2}},
    "storage": {"jpeg": {"path": "images", "format": "files", "generate": 16}},
    "matrix": [BLOCK],
    "sgemm": {"batches": [1, 2], "samples": 1},
    "collectives": {"largest": 1048576, "samples": 2},
    "storage_reads": {"samples": 4},
    "external_tables": {"elsewhere": "elsewhere.csv"},
    "claims": [
        "papers",
        "claims.yaml",
        {
            "id": "two-nodes-are-no-slower",
            "sentence": "Two nodes are at least as fast as one.",
            "quantity": {"table": "predictions", "column": "measured_speedup", "where": {"nodes": 2},
                         "for_each": "network"},
            "condition": {"at_least": 1},
            "chart": "speedup",
        },
    ],
}  # fmt: skip
