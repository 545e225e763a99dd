"""Draw every chart of a study as web page, SVG, PDF and PNG."""

from pathlib import Path

from stallpoint.errors import program
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import read_frames
from stallpoint.records.tables import NETWORK_LAYERS, TABLES
from stallpoint.report.charts import CHARTS
from stallpoint.report.charts.render import render_all

with program(Path(snakemake.log[0])):
    files = dict(snakemake.input.items())
    files[NETWORK_LAYERS.name] = list(map(Path, snakemake.input.networks))
    names = dict.fromkeys(table for chart in CHARTS.values() for table in chart.tables)
    tables = read_frames([TABLES[name] for name in names], files)
    with atomic(Path(snakemake.output.drawn)) as folder:
        folder.mkdir()
        render_all(tables, folder)
