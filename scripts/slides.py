"""Draw the answer's cards as slides, a picture for each network on each hardware entry."""

import json
from pathlib import Path

from stallpoint.base.section_texts import sections_from_json
from stallpoint.errors import program
from stallpoint.records.parquet import read_frames
from stallpoint.records.tables import PREDICTIONS, STALLING
from stallpoint.report.slides import write_slides

with program(Path(snakemake.log[0])):
    tables = read_frames((PREDICTIONS, STALLING), snakemake.input)
    sections = sections_from_json(json.loads(Path(snakemake.input.conclusions).read_text()))
    write_slides(sections, tables, Path(snakemake.output[0]))
