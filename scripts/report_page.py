"""Write the report, one page that opens from disk."""

import json
from pathlib import Path

import pandas as pd

from stallpoint.archive.further import descriptions
from stallpoint.parquet import read, read_frames
from stallpoint.program import program
from stallpoint.records import (
    COLLECTIVES,
    CONTENTION,
    ENVIRONMENTS,
    EXTRAPOLATED_TABLES,
    ITERATIONS,
    LAYERS,
    MODEL_TABLES,
    NETWORK_LAYERS,
    PUBLISHED,
    RUNS,
    SGEMM,
    VISITS,
)
from stallpoint.report import write_report
from stallpoint.study import LeftOut

with program(Path(snakemake.log[0])):
    tidy = (RUNS, ENVIRONMENTS, COLLECTIVES, CONTENTION, VISITS, ITERATIONS, LAYERS, SGEMM)
    tables = read_frames((*MODEL_TABLES, *EXTRAPOLATED_TABLES, *tidy), snakemake.input)
    networks = descriptions(snakemake.input.networks, snakemake.input.archives)
    for table, files in ((NETWORK_LAYERS, networks), (PUBLISHED, snakemake.input.published)):
        tables[table.name] = pd.concat([read(table, Path(file)).to_pandas() for file in files])
    write_report(
        json.loads(Path(snakemake.input.conclusions).read_text()),
        tables,
        Path(snakemake.output[0]),
        study=snakemake.params.study,
        papers=[Path(folder) for folder in snakemake.input.papers],
        left_out=[LeftOut(**entry) for entry in snakemake.params.left_out],
    )
