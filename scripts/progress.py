"""Say how far a study is, from its visits, records, logs and Slurm's queue: also while it runs, from any terminal.

usage: progress.py [CONFIG]
"""

import subprocess
import sys
from pathlib import Path

import yaml

from stallpoint.archive.further import further
from stallpoint.errors import program
from stallpoint.schedule.progress import states, summary
from stallpoint.schedule.requested import measured_with
from stallpoint.slurm.slurm_queue import all_clusters
from stallpoint.study.configuration import load_yaml
from stallpoint.study.study import expand


def asked(command: list[str]) -> str | None:
    """Output of a program of Slurm's; None where there is no Slurm, or no answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


with program():
    config = Path(sys.argv[1] if len(sys.argv) > 1 else "config/config.yaml")
    schema = yaml.safe_load(Path("workflow/schemas/study.schema.yaml").read_text())
    study = expand(load_yaml(config.read_text(), str(config)), schema, further)
    results = Path("results", study.name)
    found = states(study.cells.values(), results, measured_with(study.config))
    print(*summary(found, Path("logs", study.name, "turns"), results / "turns", all_clusters(asked)), sep="\n")
