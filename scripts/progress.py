"""Say how far a study is, from its visits, records and logs alone: also while it runs, also from another terminal.

usage: progress.py [CONFIG]
"""

import sys
from pathlib import Path

import yaml

from stallpoint.archive.further import further
from stallpoint.configuration import load_yaml
from stallpoint.program import program
from stallpoint.progress import states, summary
from stallpoint.study import expand

with program():
    config = Path(sys.argv[1] if len(sys.argv) > 1 else "config/config.yaml")
    schema = yaml.safe_load(Path("workflow/schemas/study.schema.yaml").read_text())
    study = expand(load_yaml(config.read_text(), str(config)), schema, further)
    found = states(study.cells.values(), Path("results", study.name))
    print(*summary(found, Path("logs", study.name, "turns")), sep="\n")
