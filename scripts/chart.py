"""Render one chart, of a study or of a paper's figures, as web page, SVG, PDF and PNG."""

from pathlib import Path

from stallpoint.charts import ALL
from stallpoint.charts.render import FORMATS, render
from stallpoint.networks.described import descriptions
from stallpoint.parquet import read_frames
from stallpoint.program import program
from stallpoint.records import NETWORK_LAYERS, TABLES

with program(Path(snakemake.log[0])):
    (name,) = snakemake.wildcards
    files = dict(snakemake.input.items())
    if NETWORK_LAYERS.name in ALL[name].tables:
        files[NETWORK_LAYERS.name] = descriptions(snakemake.input.networks, snakemake.input.archives)
    tables = read_frames([TABLES[table] for table in ALL[name].tables], files)
    render(name, tables, {format: Path(snakemake.output[format]) for format in FORMATS})
