"""Compute a paper's figures from the parameters it states."""

from pathlib import Path

import yaml

from stallpoint.errors import program
from stallpoint.models.answers.paper_figures import figures
from stallpoint.records.parquet import write
from stallpoint.records.tables import PAPER_FIGURES

with program(Path(snakemake.log[0])):
    paper = yaml.safe_load(Path(snakemake.input.paper).read_text())
    write(PAPER_FIGURES, figures(paper), Path(snakemake.output.paper_figures))
