"""Read one imported cell from its files."""

from pathlib import Path
from typing import cast

from stallpoint.archive.importing import import_cell
from stallpoint.errors import program
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell, ImportedTrainCell

with program(Path(snakemake.log[0])):
    cell = cast(ImportedTrainCell | ImportedCollectivesCell, cell_from_json(snakemake.params.cell))
    import_cell(cell, Path(snakemake.output.folder))
