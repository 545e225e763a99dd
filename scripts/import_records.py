"""Read one imported cell from its files."""

from pathlib import Path
from typing import cast

from stallpoint.cells import ImportedCollectivesCell, ImportedTrainCell
from stallpoint.exchange.importing import import_cell
from stallpoint.kinds import cell_from_json
from stallpoint.program import program

with program(Path(snakemake.log[0])):
    cell = cast(ImportedTrainCell | ImportedCollectivesCell, cell_from_json(snakemake.params.cell))
    import_cell(cell, Path(snakemake.output.folder))
