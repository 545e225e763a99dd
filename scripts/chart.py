"""Render one chart as HTML, SVG and PNG."""

from pathlib import Path

from stallpoint.charts import CHARTS
from stallpoint.charts.render import render
from stallpoint.parquet import read_frames
from stallpoint.program import program
from stallpoint.records import TABLES

with program(Path(snakemake.log[0])):
    name = snakemake.wildcards.chart
    tables = read_frames([TABLES[table] for table in CHARTS[name].tables], snakemake.input)
    render(name, tables, *(Path(snakemake.output[format]) for format in ("html", "svg", "png")))
