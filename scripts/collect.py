"""Collect the raw records of all cells into tidy tables."""

from pathlib import Path

from stallpoint.archive.other_archives import record_folders
from stallpoint.errors import program
from stallpoint.records.tables import TIDY_TABLES
from stallpoint.study.collect import collect_all

with program(Path(snakemake.log[0])):
    folders = [Path(folder) for folder in snakemake.input.folders]
    folders += [folder for archive in snakemake.input.archives for folder in record_folders(Path(archive))]
    collect_all(folders, {table.name: snakemake.output[table.name] for table in TIDY_TABLES})
