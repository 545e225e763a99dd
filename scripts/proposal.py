"""Write the page for a proposal for compute time."""

from pathlib import Path

from stallpoint.errors import program
from stallpoint.questions.proposal import proposed_curves
from stallpoint.questions.study_tables import StudyTables
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import read_frames
from stallpoint.records.tables import COSTS, PREDICTIONS, STALLING
from stallpoint_files.proposal_page import to_html

with program(Path(snakemake.log[0])):
    tables = read_frames([PREDICTIONS, COSTS, STALLING], snakemake.input)
    proposed = proposed_curves(
        StudyTables(tables), snakemake.params.samples, snakemake.params.epochs, snakemake.params.min_efficiency
    )
    with atomic(Path(snakemake.output[0])) as scratch:
        scratch.write_text(to_html(proposed))
