"""Judge the claims and draw the conclusions, as text and as data."""

import json
from pathlib import Path

from stallpoint.base.section_texts import in_markdown, sections_to_json
from stallpoint.errors import program
from stallpoint.questions.all_questions import sections
from stallpoint.questions.claims.claim_files import read_claims
from stallpoint.questions.claims.facts import facts
from stallpoint.questions.claims.judge import judge, rows
from stallpoint.questions.claims.quantity import Evidence
from stallpoint.questions.study_tables import StudyTables
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import read_frames, write
from stallpoint.records.tables import (
    CLAIMS,
    CONVERGENCE_RUNS,
    ENVIRONMENTS,
    EXTRAPOLATED_TABLES,
    INSTRUMENTATION,
    MODEL_TABLES,
    NETWORK_LAYERS,
    RUNS,
    VISITS,
)
from stallpoint.study.study import Exclusion

with program(Path(snakemake.log[0])):
    tidy = (RUNS, ENVIRONMENTS, INSTRUMENTATION, CONVERGENCE_RUNS, VISITS)
    tables = read_frames((*MODEL_TABLES, *EXTRAPOLATED_TABLES, *tidy, NETWORK_LAYERS), snakemake.input)
    evidence = Evidence(tables, facts(tables[RUNS.name], snakemake.params.shared_links))
    claims = judge(read_claims(snakemake.input.claim_files, snakemake.params.claims), evidence)
    external = []
    if snakemake.params.external:  # the imports take a second
        try:
            from stallpoint_files.external_tables import external_answers
            from stallpoint_files.file_options import Options
        except ModuleNotFoundError:  # only the core is installed
            external = None
        else:
            options = Options(threshold=snakemake.params.threshold)
            named = zip(snakemake.params.external, snakemake.input.external, strict=True)
            external = [one for name, file in named for one in external_answers(name, Path(file), options)]
    write(CLAIMS, rows(claims), Path(snakemake.output.claims))
    excluded = [Exclusion(**entry) for entry in snakemake.params.excluded]
    study = StudyTables(
        tables, snakemake.params.threshold, claims=claims, external=external, excluded=excluded,
        impossible=Path(snakemake.input.impossible).read_text(),
    )  # fmt: skip
    found = list(sections(study))
    texts = {
        "md": in_markdown("Conclusions", found),
        "json": json.dumps(sections_to_json(found), indent=2) + "\n",
    }
    for name, text in texts.items():
        with atomic(Path(snakemake.output[name])) as scratch:
            scratch.write_text(text)
