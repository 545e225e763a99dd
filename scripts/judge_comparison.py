"""Report what changed from one study to another, and fail if the user asks for that."""

import json
import sys
from pathlib import Path

from stallpoint.archive.comparison.changes import is_failure
from stallpoint.errors import program

with program(Path(snakemake.log[0])):
    found = json.loads(Path(snakemake.input.json).read_text())
    print(*found["summary"], snakemake.input.html, sep="\n")
    if is_failure(found["moved"], snakemake.params.fail_on):
        print(f"told to fail on {snakemake.params.fail_on}", file=sys.stderr)
        sys.exit(1)
