"""Draw the conclusions, as text and as data."""

import json
from pathlib import Path

from stallpoint.conclusions.numbers import conclude
from stallpoint.conclusions.words import to_markdown
from stallpoint.parquet import atomic, read_frames
from stallpoint.program import program
from stallpoint.records import INSTRUMENTATION, MODEL_TABLES, RUNS

with program(Path(snakemake.log[0])):
    tables = read_frames((*MODEL_TABLES, RUNS, INSTRUMENTATION), snakemake.input)
    conclusions = conclude(tables, **snakemake.params.judged_by)
    with atomic(Path(snakemake.output.md)) as scratch:
        scratch.write_text(to_markdown(conclusions))
    with atomic(Path(snakemake.output.json)) as scratch:
        scratch.write_text(json.dumps(conclusions, indent=2) + "\n")
