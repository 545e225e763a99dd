"""Say how far a study is, from its visits, records, logs and Slurm's queue: also while it runs, from any terminal.

usage: progress.py [CONFIG]
"""

import sys
from pathlib import Path

from stallpoint.errors import program
from stallpoint.schedule.next_round import expanded
from stallpoint.schedule.progress import states, summary
from stallpoint.schedule.requested import inputs_by_config
from stallpoint.slurm.asking import output_of
from stallpoint.slurm.slurm_queue import all_clusters
from stallpoint.study.configuration import load_file, load_study

with program():
    config = Path(sys.argv[1] if len(sys.argv) > 1 else "config/config.yaml")
    schema = load_file(Path("workflow/schemas/study.schema.yaml"))
    study = expanded(load_study(config), schema)
    results = Path("results", study.name)
    found = states(study.cells.values(), results, inputs_by_config(study.config))
    print(
        *summary(
            found, Path("logs", study.name, "schedule"), results / "schedule", all_clusters(output_of), study.nested
        ),
        sep="\n",
    )
