"""Write the report, one page that opens from disk."""

import json
from pathlib import Path

from stallpoint.parquet import read_frames
from stallpoint.program import program
from stallpoint.records import COLLECTIVES, ENVIRONMENTS, EXTRAPOLATED_TABLES, MODEL_TABLES, RUNS
from stallpoint.report import write_report
from stallpoint.study import LeftOut

with program(Path(snakemake.log[0])):
    write_report(
        json.loads(Path(snakemake.input.conclusions).read_text()),
        read_frames((*MODEL_TABLES, *EXTRAPOLATED_TABLES, RUNS, ENVIRONMENTS, COLLECTIVES), snakemake.input),
        Path(snakemake.output[0]),
        study=snakemake.params.study,
        left_out=[LeftOut(**entry) for entry in snakemake.params.left_out],
    )
