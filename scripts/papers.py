"""Make every figure and table of one paper from the study."""

from pathlib import Path

import pandas as pd

from stallpoint.papers import PAPERS, Material
from stallpoint.papers.make import make, published
from stallpoint.parquet import read, read_frames
from stallpoint.program import program
from stallpoint.records import NETWORK_LAYERS, TABLES

with program(Path(snakemake.log[0])):
    paper = PAPERS[snakemake.wildcards.publication]
    tables = read_frames([TABLES[name] for name in paper.tables if name != NETWORK_LAYERS.name], snakemake.input)
    tables[NETWORK_LAYERS.name] = pd.concat(
        [read(NETWORK_LAYERS, Path(file)).to_pandas() for file in snakemake.input.networks]
    )
    make(paper, Material(tables, published(map(Path, snakemake.input.published))), Path(snakemake.output.folder))
