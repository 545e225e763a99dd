"""Render one chart of a paper's figures as web page, SVG, PDF and PNG."""

from pathlib import Path

from stallpoint.errors import program
from stallpoint.records.parquet import read_frames
from stallpoint.records.tables import TABLES
from stallpoint.report.charts import PAPERS
from stallpoint.report.charts.render import FORMATS, render

with program(Path(snakemake.log[0])):
    (name,) = snakemake.wildcards
    tables = read_frames([TABLES[table] for table in PAPERS[name].tables], snakemake.input)
    render(name, tables, {format: Path(snakemake.output[format]) for format in FORMATS})
