"""Compare a published table of network properties with the study's own networks."""

from pathlib import Path

import yaml

from stallpoint.errors import program
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import read_frames, to_arrow, write
from stallpoint.records.tables import CONVERGENCE_RUNS, NETWORK_LAYERS, PUBLISHED
from stallpoint.report.exhibits.published import compare, to_markdown

with program(Path(snakemake.log[0])):
    published = yaml.safe_load(Path(snakemake.input.published).read_text())
    networks = list(map(Path, snakemake.input.networks))
    files = {NETWORK_LAYERS.name: networks, CONVERGENCE_RUNS.name: [snakemake.input.runs]}
    tables = read_frames([NETWORK_LAYERS, CONVERGENCE_RUNS], files)
    layers, runs = (tables[table.name] for table in (NETWORK_LAYERS, CONVERGENCE_RUNS))
    rows = to_arrow(PUBLISHED, compare(published, layers, snakemake.params.batches, runs))
    write(PUBLISHED, rows, Path(snakemake.output.table))
    with atomic(Path(snakemake.output.md)) as scratch:
        scratch.write_text(to_markdown(rows.to_pandas()))
