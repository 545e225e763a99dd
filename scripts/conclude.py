"""Draw the conclusions, as text and as data."""

import json
from pathlib import Path

from stallpoint.conclusions import conclude, to_markdown
from stallpoint.parquet import atomic, read
from stallpoint.records import MODEL_TABLES, RUNS

tables = {
    table.name: read(table, Path(snakemake.input[table.name])).to_pandas() for table in (*MODEL_TABLES, RUNS)
}
conclusions = conclude(tables, threshold=snakemake.params.threshold)
with atomic(Path(snakemake.output.md)) as scratch:
    scratch.write_text(to_markdown(conclusions))
with atomic(Path(snakemake.output.json)) as scratch:
    scratch.write_text(json.dumps(conclusions, indent=2) + "\n")
