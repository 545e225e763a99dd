"""Write the report, one page that opens from disk."""

import json
from pathlib import Path

from stallpoint.base.section_texts import sections_from_json
from stallpoint.errors import program
from stallpoint.records.parquet import read_frames
from stallpoint.records.tables import (
    COLLECTIVES,
    CONTENTION,
    ENVIRONMENTS,
    EXTRAPOLATED_TABLES,
    MODEL_TABLES,
    NETWORK_LAYERS,
    RUNS,
    SGEMM,
    VISITS,
)
from stallpoint.report.report import write_report

with program(Path(snakemake.log[0])):
    tidy = (RUNS, ENVIRONMENTS, COLLECTIVES, CONTENTION, VISITS, SGEMM)
    files = dict(snakemake.input.items())
    files[NETWORK_LAYERS.name] = list(map(Path, snakemake.input.networks))
    tables = read_frames((*MODEL_TABLES, *EXTRAPOLATED_TABLES, *tidy, NETWORK_LAYERS), files)
    parts = []
    if snakemake.input.papers:
        from stallpoint_papers.papers_section import papers_section

        parts.append(
            papers_section([Path(folder) for folder in snakemake.input.papers], Path(snakemake.output[0]).parent)
        )
    write_report(
        sections_from_json(json.loads(Path(snakemake.input.conclusions).read_text())),
        tables,
        Path(snakemake.output[0]),
        study=snakemake.params.study,
        further_parts=parts,
        made_specs={file.stem: json.loads(file.read_text()) for file in map(Path, snakemake.input.charts)},
    )
