"""Export the task graph of one training cell."""

from pathlib import Path

from stallpoint.archive.exporting import export_task_graph
from stallpoint.errors import program

with program(Path(snakemake.log[0])):
    export_task_graph(Path(snakemake.input.records), Path(snakemake.output.graph))
