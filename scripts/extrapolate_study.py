"""Fit scaling laws to the study's own rates and its external tables, predict, and check by held-out counts."""

from pathlib import Path

from stallpoint.errors import program
from stallpoint.models.scaling.extrapolation import OWN_RATES, extrapolated
from stallpoint.records.parquet import read, write
from stallpoint.records.tables import EXTRAPOLATED_TABLES, RATES

try:
    from stallpoint_files.rates.rates import read_rates
except ModuleNotFoundError:  # only the core is installed: conclusions say so
    read_rates = None

with program(Path(snakemake.log[0])):
    external = zip(snakemake.params.names, snakemake.input.external, strict=True)
    tables = {name: read_rates(Path(file)) for name, file in external} if read_rates else {}
    tables[OWN_RATES] = read(RATES, Path(snakemake.input.rates)).to_pandas()
    for name, frame in extrapolated(tables).items():
        table = next(table for table in EXTRAPOLATED_TABLES if table.name == name)
        write(table, frame, Path(snakemake.output[name]))
