"""Compare two studies, and write what changed."""

from pathlib import Path

from stallpoint.comparison.answers import compare
from stallpoint.comparison.places import FORMATS
from stallpoint.comparison.reading import read_results
from stallpoint.comparison.writing import write_comparison
from stallpoint.program import program

with program(Path(snakemake.log[0])):
    old, new = (read_results(snakemake.params[entry], entry) for entry in ("old", "new"))
    write_comparison(
        compare(old, new, between=snakemake.params.between),
        {format: Path(snakemake.output[format]) for format in FORMATS},
    )
