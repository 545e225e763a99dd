"""Compare a published table of network properties with the study's own networks."""

from pathlib import Path

import yaml

from stallpoint.errors import program
from stallpoint.networks.described import descriptions
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import read_frames, to_arrow, write
from stallpoint.records.tables import NETWORK_LAYERS, PUBLISHED
from stallpoint.report.exhibits.published import compare, to_markdown

with program(Path(snakemake.log[0])):
    published = yaml.safe_load(Path(snakemake.input.published).read_text())
    networks = descriptions(snakemake.input.networks, snakemake.input.archives)
    tables = read_frames([NETWORK_LAYERS], {NETWORK_LAYERS.name: networks})
    rows = to_arrow(PUBLISHED, compare(published, tables[NETWORK_LAYERS.name], snakemake.params.batches))
    write(PUBLISHED, rows, Path(snakemake.output.table))
    with atomic(Path(snakemake.output.md)) as scratch:
        scratch.write_text(to_markdown(rows.to_pandas()))
