"""Say what running a study would measure, and what that is expected to take: the plan of `snakemake -n`, alone.

usage: plan.py [CONFIG] [--json] [--cluster]

--cluster: jobs are submitted, and each has the cores that the study says; else all share this machine's.
"""

import argparse
import json
from pathlib import Path

from stallpoint.errors import program
from stallpoint.measure.machine.usable_cores import usable_cores
from stallpoint.schedule.next_round import expanded
from stallpoint.schedule.planning.plan import plan_of
from stallpoint.schedule.planning.plan_text import check_budget, text
from stallpoint.study.configuration import load_file, load_study

with program():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="config/config.yaml", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cluster", action="store_true")
    asked = parser.parse_args()
    schema = load_file(Path("workflow/schemas/study.schema.yaml"))
    study = expanded(load_study(asked.config), schema)
    cores = None if asked.cluster else usable_cores()
    plan = plan_of(study, Path("results", study.name), cores=cores, concurrent=asked.cluster)
    print(json.dumps(plan.to_json(), indent=1) if asked.json else f"{study.plan()}\n{text(plan)}")
    check_budget(plan)
