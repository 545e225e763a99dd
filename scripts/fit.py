"""Fit every model to the tidy tables."""

from pathlib import Path

from stallpoint.errors import program
from stallpoint.models import fitting
from stallpoint.models.iteration.scenarios import scenarios
from stallpoint.models.terms.training_cells import COLUMNS, PART_KEYS
from stallpoint.networks.described import cuts_of
from stallpoint.records.parquet import frames_of_cells, read, read_frames, write
from stallpoint.records.tables import MODEL_TABLES, NETWORK_LAYERS, TIDY_TABLES
from stallpoint.strategies.presets import presets_of

with program(Path(snakemake.log[0])):
    networks = list(map(Path, snakemake.input.networks))
    sizes = [read(NETWORK_LAYERS, file).to_pandas() for file in networks]
    tidy = read_frames([table for table in TIDY_TABLES if table not in COLUMNS], snakemake.input)
    fitted = fitting.fit(
        tidy,
        frames_of_cells(COLUMNS, snakemake.input, tidy["runs"]["cell"], PART_KEYS),
        **snakemake.params.models,
        shared_links=snakemake.params.shared_links,
        scenarios=scenarios(snakemake.params.what_if),
        known_presets=presets_of(snakemake.params.presets),
        available=snakemake.params.available,
        cuts={size["network"][0]: cuts_of(size) for size in sizes},
        multiply_adds={size["network"][0]: size["multiply_adds"].sum(min_count=1) for size in sizes},
        rated=snakemake.params.rated,
        failures=snakemake.params.failures,
        epoch_samples=snakemake.params.epoch_samples,
        seed=snakemake.params.seed,
    )
    for table in MODEL_TABLES:
        write(table, fitted[table.name], Path(snakemake.output[table.name]))
