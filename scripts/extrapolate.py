"""Predict the rates of a table's larger worker counts from its smaller ones.

usage: extrapolate.py TABLE.csv --fit-up-to FRACTION --out FILE.parquet

TABLE.csv has the columns series, workers, workers_per_node, samples_per_second and, optionally, batch_per_worker and
compute_seconds (an iteration's computing alone, without communication).
Each series is fitted on the rows with workers <= FRACTION x its largest count (at least the three smallest counts).
FILE.parquet has a row for every count: series, workers, predicted, lower and upper (90 % interval) in samples per
second, and the law, or why there is no prediction.
"""

import argparse
from pathlib import Path

from stallpoint.errors import InputError, program
from stallpoint.models.scaling.extrapolation import extrapolate
from stallpoint.records.parquet import write
from stallpoint.records.tables import EXTRAPOLATION
from stallpoint_files.rates.rates import read_rates

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("table", type=Path)
parser.add_argument("--fit-up-to", type=float, required=True, metavar="FRACTION")
parser.add_argument("--out", type=Path, required=True, metavar="FILE")
arguments = parser.parse_args()
with program():
    if not 0 < arguments.fit_up_to <= 1:
        raise InputError(f"--fit-up-to: {arguments.fit_up_to} is no part of the largest count; above 0, up to 1")
    write(EXTRAPOLATION, extrapolate(read_rates(arguments.table), arguments.fit_up_to), arguments.out)
