"""Write the report, one page that opens from disk."""

import json
from pathlib import Path

from stallpoint.parquet import read
from stallpoint.records import COLLECTIVES, ENVIRONMENTS, MODEL_TABLES, RUNS
from stallpoint.report import write_report
from stallpoint.study import LeftOut

tables = {
    table.name: read(table, Path(snakemake.input[table.name])).to_pandas()
    for table in (*MODEL_TABLES, RUNS, ENVIRONMENTS, COLLECTIVES)
}
conclusions = json.loads(Path(snakemake.input.conclusions).read_text())
left_out = [LeftOut(**entry) for entry in snakemake.params.left_out]
write_report(conclusions, tables, Path(snakemake.output[0]), study=snakemake.params.study, left_out=left_out)
