"""Make every figure and table of one paper from the study."""

from pathlib import Path

from stallpoint.errors import program
from stallpoint.records.parquet import read_frames
from stallpoint.records.tables import TABLES
from stallpoint_papers.exhibits import PAPERS, Material
from stallpoint_papers.make import make, published

with program(Path(snakemake.log[0])):
    paper = PAPERS[snakemake.wildcards.publication]
    tables = read_frames([TABLES[name] for name in paper.tables], snakemake.input)
    make(paper, Material(tables, published(map(Path, snakemake.input.published))), Path(snakemake.output.folder))
