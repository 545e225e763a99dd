"""Collect the raw records of all cells into tidy tables."""

from pathlib import Path

from stallpoint.errors import program
from stallpoint.records.atomic import atomic
from stallpoint.records.tables import TIDY_TABLES
from stallpoint.study.collect import collect_all
from stallpoint.text import sort_key

with program(Path(snakemake.log[0])):
    measured = [folder for mark in snakemake.input.marks for folder in Path(mark).read_text().splitlines()]
    # Similar cells of all blocks are adjacent, so that statistics of row groups show which ones to skip.
    folders = [Path(folder) for folder in sorted([*measured, *snakemake.input.folders], key=sort_key)]
    impossible = collect_all(folders, {table.name: snakemake.output[table.name] for table in TIDY_TABLES})
    with atomic(Path(snakemake.output.impossible)) as scratch:
        scratch.write_text(impossible)
