"""Compute a paper's figures from the parameters it states."""

from pathlib import Path

import yaml

from stallpoint.models.answers.paper_figures import figures
from stallpoint.parquet import write
from stallpoint.program import program
from stallpoint.records import PAPER_FIGURES

with program(Path(snakemake.log[0])):
    paper = yaml.safe_load(Path(snakemake.input.paper).read_text())
    write(PAPER_FIGURES, figures(paper), Path(snakemake.output.paper_figures))
