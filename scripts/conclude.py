"""Judge the claims and draw the conclusions, as text and as data."""

import json
from pathlib import Path

from stallpoint.atomic import atomic
from stallpoint.claims.facts import facts
from stallpoint.claims.judge import judge, rows
from stallpoint.claims.quantity import Evidence
from stallpoint.claims.reading import read_claims
from stallpoint.conclusions.details import details
from stallpoint.conclusions.numbers import conclude
from stallpoint.conclusions.page import page
from stallpoint.conclusions.systems import systems
from stallpoint.parquet import read_frames, write
from stallpoint.program import program
from stallpoint.records import (
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

with program(Path(snakemake.log[0])):
    tidy = (RUNS, ENVIRONMENTS, INSTRUMENTATION, CONVERGENCE_RUNS, VISITS)
    tables = read_frames((*MODEL_TABLES, *EXTRAPOLATED_TABLES, *tidy, NETWORK_LAYERS), snakemake.input)
    evidence = Evidence(tables, facts(tables[RUNS.name], snakemake.params.shared_links))
    claims = judge(read_claims(snakemake.input.claim_files, snakemake.params.claims), evidence)
    conclusions = conclude(tables, **snakemake.params.judged_by, claims=claims)
    write(CLAIMS, rows(claims), Path(snakemake.output.claims))
    texts = {
        "md": page(conclusions),
        "details": details(conclusions),
        "json": json.dumps(conclusions, indent=2) + "\n",
        "systems": systems(conclusions, tables[RUNS.name], tables[ENVIRONMENTS.name]),
    }
    for name, text in texts.items():
        with atomic(Path(snakemake.output[name])) as scratch:
            scratch.write_text(text)
