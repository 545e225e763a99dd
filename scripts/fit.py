"""Fit every model to the tidy tables."""

from pathlib import Path

from stallpoint import models
from stallpoint.errors import plain_errors
from stallpoint.parquet import read, write
from stallpoint.records import MODEL_TABLES, TIDY_TABLES

with plain_errors():
    tidy = {table.name: read(table, Path(snakemake.input[table.name])).to_pandas() for table in TIDY_TABLES}
    fitted = models.fit(tidy, **snakemake.params.models, seed=snakemake.params.seed)
    for table in MODEL_TABLES:
        write(table, fitted[table.name], Path(snakemake.output[table.name]))
