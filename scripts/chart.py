"""Render one chart, of a study or of a paper's figures, as web page, SVG, PDF and PNG."""

from pathlib import Path

import pandas as pd

from stallpoint.archive.further import descriptions
from stallpoint.charts import ALL
from stallpoint.charts.render import FORMATS, render
from stallpoint.parquet import read, read_frames
from stallpoint.program import program
from stallpoint.records import NETWORK_LAYERS, TABLES

with program(Path(snakemake.log[0])):
    (name,) = snakemake.wildcards
    wanted = [TABLES[table] for table in ALL[name].tables]
    tables = read_frames([table for table in wanted if table != NETWORK_LAYERS], snakemake.input)
    if NETWORK_LAYERS in wanted:
        files = descriptions(snakemake.input.networks, snakemake.input.archives)
        tables[NETWORK_LAYERS.name] = pd.concat([read(NETWORK_LAYERS, Path(file)).to_pandas() for file in files])
    render(name, tables, {format: Path(snakemake.output[format]) for format in FORMATS})
