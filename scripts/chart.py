"""Render one chart of a paper's figures as web page, SVG, PDF and PNG."""

from pathlib import Path

from stallpoint.charts import PAPERS
from stallpoint.charts.render import FORMATS, render
from stallpoint.parquet import read_frames
from stallpoint.program import program
from stallpoint.records import TABLES

with program(Path(snakemake.log[0])):
    (name,) = snakemake.wildcards
    tables = read_frames([TABLES[table] for table in PAPERS[name].tables], snakemake.input)
    render(name, tables, {format: Path(snakemake.output[format]) for format in FORMATS})
