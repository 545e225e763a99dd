"""Make every figure and table of one paper from the study."""

from pathlib import Path

from stallpoint.papers import PAPERS, Material
from stallpoint.papers.make import make, published
from stallpoint.parquet import read_frames
from stallpoint.program import program
from stallpoint.records import TABLES

with program(Path(snakemake.log[0])):
    paper = PAPERS[snakemake.wildcards.publication]
    tables = read_frames([TABLES[name] for name in paper.tables], snakemake.input)
    make(paper, Material(tables, published(map(Path, snakemake.input.published))), Path(snakemake.output.folder))
