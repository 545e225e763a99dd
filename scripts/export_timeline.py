"""Export the timeline of one training cell."""

from pathlib import Path

from stallpoint.exchange.timeline import export_timeline
from stallpoint.program import program

with program(Path(snakemake.log[0])):
    export_timeline(Path(snakemake.input.records), Path(snakemake.output.timeline))
