"""Write model tables as CSV, LaTeX and Markdown."""

from pathlib import Path

from stallpoint.errors import program
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import read_frames
from stallpoint.records.tables import EXTRAPOLATED_TABLES, MODEL_TABLES
from stallpoint.report import typeset

with program(Path(snakemake.log[0])):
    tables = (*MODEL_TABLES, *EXTRAPOLATED_TABLES)
    frames = read_frames(tables, snakemake.input)
    with atomic(Path(snakemake.output.folder)) as folder:
        folder.mkdir()
        for table in tables:
            files = {name: folder / f"{table.name}.{name}" for name in typeset.FORMATS}
            typeset.write(typeset.typeset_records(table, frames[table.name]), files)
