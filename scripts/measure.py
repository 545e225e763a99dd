"""Launch one measuring job; its own messages go to the log."""

from pathlib import Path

from stallpoint.cells import KINDS
from stallpoint.measure.launch import THIS_MACHINE, launch
from stallpoint.program import program

with program():
    launch(
        KINDS[snakemake.rule].from_json(snakemake.params.cell),
        Path(snakemake.output.folder),
        launcher=snakemake.resources.get("mpi", THIS_MACHINE),
        log=Path(snakemake.log[0]),
    )
