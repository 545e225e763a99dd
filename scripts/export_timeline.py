"""Export the timeline of one training cell."""

from pathlib import Path

from stallpoint.archive.timeline_export import export_timeline
from stallpoint.errors import program

with program(Path(snakemake.log[0])):
    export_timeline(Path(snakemake.input.records), Path(snakemake.output.timeline))
