"""Compute a paper's figures from the parameters it states."""

from pathlib import Path

import yaml

from stallpoint.errors import program
from stallpoint.records.parquet import write
from stallpoint.records.tables import PAPER_FIGURES
from stallpoint_papers.paper_figures import figures

with program(Path(snakemake.log[0])):
    paper = yaml.safe_load(Path(snakemake.input.paper).read_text())
    write(PAPER_FIGURES, figures(paper), Path(snakemake.output.paper_figures))
