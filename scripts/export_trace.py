"""Export one training cell as layer-wise traces."""

from pathlib import Path

from stallpoint.archive.exporting import export_trace
from stallpoint.errors import program

with program(Path(snakemake.log[0])):
    export_trace(Path(snakemake.input.records), Path(snakemake.output.folder))
