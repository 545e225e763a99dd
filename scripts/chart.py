"""Render one chart as HTML, SVG and PNG."""

from pathlib import Path

from stallpoint.charts import CHARTS
from stallpoint.charts.render import render
from stallpoint.parquet import read
from stallpoint.records import TABLES

name = snakemake.wildcards.chart
tables = {table: read(TABLES[table], Path(snakemake.input[table])).to_pandas() for table in CHARTS[name].tables}
render(name, tables, *(Path(snakemake.output[format]) for format in ("html", "svg", "png")))
