"""Write docs/records.md, every table and column of the records, from `stallpoint.records.tables`.

usage: document_records.py > docs/records.md
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from stallpoint.records import tables as records
from stallpoint.records.tables import Column, Table
from stallpoint.study.kinds import KINDS

HEAD = f"""# Records

Everything stallpoint measures and derives is in Parquet files, which pandas, polars, DuckDB, R and others read. Units
and meanings stand in each file too, in the metadata of its fields, with the version of the schema
(`stallpoint_schema`: {records.SCHEMA_VERSION}). Files appear whole or not at all.

```python
import pandas as pd

iterations = pd.read_parquet("results/default/tables/iterations.parquet")
iterations[~iterations["warmup"]].groupby(["network", "sync", "nodes"])["iteration_time"].median()
```

Times are in seconds, sizes in bytes. A quantity with `_low` and `_high` is a median or a fit with its 90 % interval.
What was not measured, or cannot be known from what was, is empty and never 0.

Cells are measured in several *visits*, in turns with other cells ([How it measures](measuring.md#cells-take-turns)).
Rows say which visit they are from; iterations and samples are counted on from visit to visit. Disturbed iterations are
in the raw records and the collected tables, listed in [disturbances](#disturbances), and left out of model tables.

(Generated from `src/stallpoint/records/tables.py` by `scripts/document_records.py`.)
"""

TYPES = {
    records.TEXT: "text",
    records.INT: "integer",
    records.REAL: "number",
    records.FLAG: "true or false",
    pa.timestamp("us", tz="UTC"): "time (UTC)",
}


@dataclass(frozen=True)
class Section:
    """Tables that come from one place."""

    title: str
    written: str
    tables: tuple[Table, ...]


def jobs(table: Table) -> str:
    """The jobs whose cells hold this raw table."""
    kinds = [f"`{name.replace('-', '_')}`" for name, kind in KINDS.items() if table in kind.tables]
    return f"In cells of: {', '.join(kinds)}."


SECTIONS = (
    Section(
        "Raw records",
        "One file for each cell, with the rows of all its visits: `results/<study>/raw/<cell>/<table>.parquet`. The "
        "rule of its kind copies it from `results/<study>/visits`, where the job that measures writes it. A cell that "
        "could not run holds `runs` alone. The rule `collect` puts the rows of all cells together, under the same "
        "names and columns: `results/<study>/tables/<table>.parquet`.",
        records.TIDY_TABLES,
    ),
    Section(
        "Model tables",
        "Written by the rule `fit` from the collected tables: `results/<study>/models/<table>.parquet`. "
        "[Models](models/index.md) says how each is computed.",
        records.MODEL_TABLES,
    ),
    Section(
        "Extrapolations",
        "Written by the rule `extrapolate` from `rates` and the study's external tables: "
        "`results/<study>/models/<table>.parquet`.",
        records.EXTRAPOLATED_TABLES,
    ),
    Section(
        "Networks",
        "Written by the rule `describe_network`, before anything is measured: "
        "`results/<study>/networks/<network>.parquet`.",
        (records.NETWORK_LAYERS,),
    ),
    Section(
        "Published tables beside ours",
        "Written by the rule `compare_published` from `resources/published` and the networks: "
        "`results/<study>/published/<name>.parquet`.",
        (records.PUBLISHED,),
    ),
    Section(
        "Figures of a paper",
        "Written by the rule `paper_table` (`snakemake paper_figures`) from a paper's published parameters: "
        "`results/paper_figures/<paper>.parquet`.",
        (records.PAPER_FIGURES,),
    ),
    Section(
        "Claims",
        "Written by the rule `conclude` from the claims of `resources/claims` and of the study: "
        "`results/<study>/claims.parquet`.",
        (records.CLAIMS,),
    ),
    Section(
        "Slurm's accounting",
        "Written by `snakemake archive`, where `sacct` answers, and kept in the archive alone.",
        (records.ACCOUNTING,),
    ),
    Section(
        "Two studies beside each other",
        "Written by the rule `comparison` (`snakemake compare`): `results/compare/<old>-<new>/comparison.parquet`. "
        "[Compare](compare.md) says how it is judged.",
        (records.COMPARISON,),
    ),
)


def rows(table: Table) -> Iterator[str]:
    """A line for each column; a quantity and the ends of its interval share one."""
    names = {column.name for column in table.columns}
    for column in table.columns:
        if not any(column.name.endswith(end) and column.name.removesuffix(end) in names for end in ("_low", "_high")):
            yield row(column, f"{column.name}_low" in names)


def row(column: Column, interval: bool) -> str:
    """The line of one column."""
    name = ", ".join(f"`{column.name}{end}`" for end in (("", "_low", "_high") if interval else ("",)))
    meaning = column.description.replace("|", "\\|").replace("<", "&lt;")
    return f"| {name} | {TYPES[column.type]} | {column.unit or ''} | {meaning} |"


def lines() -> Iterator[str]:
    """The whole page."""
    yield HEAD
    described = [table.name for section in SECTIONS for table in section.tables]
    if missing := records.TABLES.keys() - described:
        raise SystemExit(f"document_records.py does not say where these tables come from: {', '.join(sorted(missing))}")
    for section in SECTIONS:
        yield f"## {section.title}\n\n{section.written}\n"
        for table in section.tables:
            written = f" {jobs(table)}" if table in records.TIDY_TABLES else ""
            yield f"### {table.name}\n\n{table.description[0].upper()}{table.description[1:]}.{written}\n"
            yield "| column | type | unit | meaning |\n| --- | --- | --- | --- |"
            yield from rows(table)
            yield ""


if __name__ == "__main__":
    print("\n".join(lines()).rstrip())
