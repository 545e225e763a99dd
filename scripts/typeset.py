"""Write model tables as CSV, LaTeX and Markdown."""

from pathlib import Path

from stallpoint import typeset
from stallpoint.atomic import atomic
from stallpoint.parquet import read_frames
from stallpoint.program import program
from stallpoint.records import EXTRAPOLATED_TABLES, MODEL_TABLES

with program(Path(snakemake.log[0])):
    tables = (*MODEL_TABLES, *EXTRAPOLATED_TABLES)
    frames = read_frames(tables, snakemake.input)
    with atomic(Path(snakemake.output.folder)) as folder:
        folder.mkdir()
        for table in tables:
            files = {name: folder / f"{table.name}.{name}" for name in typeset.FORMATS}
            typeset.write(typeset.of_records(table, frames[table.name]), files)
