"""Compare two studies, and write what changed."""

from pathlib import Path

from stallpoint.archive.comparison.changes import compare
from stallpoint.archive.comparison.compared_results import read_results
from stallpoint.archive.comparison.comparison_data import write_comparison
from stallpoint.archive.comparison.comparison_files import FORMATS
from stallpoint.errors import program

with program(Path(snakemake.log[0])):
    old, new = (read_results(snakemake.params[entry], entry) for entry in ("old", "new"))
    write_comparison(
        compare(old, new, study_deviation=snakemake.params.between),
        {format: Path(snakemake.output[format]) for format in FORMATS},
    )
