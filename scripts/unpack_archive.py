"""Take the records of one archive as further hardware."""

from pathlib import Path

from stallpoint.archive.other_archives import unpack
from stallpoint.errors import program

with program(Path(snakemake.log[0])):
    unpack(snakemake.wildcards.archive, Path(snakemake.input.archive), Path(snakemake.output.folder))
