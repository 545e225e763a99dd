"""Launch one measuring job."""

from pathlib import Path

from stallpoint.cells import KINDS
from stallpoint.errors import plain_errors
from stallpoint.measure.launch import THIS_MACHINE, launch

with plain_errors():
    launch(
        KINDS[snakemake.rule].from_json(snakemake.params.cell),
        Path(snakemake.output.folder),
        launcher=snakemake.resources.get("mpi", THIS_MACHINE),
        log=Path(snakemake.log[0]),
    )
