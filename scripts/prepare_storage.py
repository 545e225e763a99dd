"""Generate, convert or check the samples of one storage entry and write their manifest."""

import json
from pathlib import Path

from stallpoint.errors import program
from stallpoint.records.atomic import atomic
from stallpoint.storage import Storage
from stallpoint.storage.generate import prepare
from stallpoint.study.study import shape

with program(Path(snakemake.log[0])):
    entry, source = snakemake.params.entry, snakemake.params.source
    storage = Storage(snakemake.wildcards.storage, Path(entry["path"]), entry["format"])
    manifest = prepare(
        storage,
        generate=entry.get("generate"),
        source=Storage(source["name"], Path(source["path"]), source["format"]) if source else None,
        seed=snakemake.params.seed,
        shape=shape(entry),
        max_corrupt=entry["max_corrupt"],
    )
    with atomic(Path(snakemake.output.manifest)) as scratch:
        scratch.write_text(json.dumps(manifest, indent=2) + "\n")
