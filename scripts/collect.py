"""Collect the raw records of all cells into tidy tables."""

from pathlib import Path

from stallpoint.archive.further import record_folders
from stallpoint.collect import collect
from stallpoint.program import program
from stallpoint.records import TIDY_TABLES

with program(Path(snakemake.log[0])):
    folders = [Path(folder) for folder in snakemake.input.folders]
    folders += [folder for archive in snakemake.input.archives for folder in record_folders(Path(archive))]
    for table in TIDY_TABLES:
        collect(table, folders, Path(snakemake.output[table.name]))
