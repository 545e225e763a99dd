"""One process of a measuring job: ``python -m stallpoint.measure CELL_JSON FOLDER``.

Started once, or once for each rank by an MPI launcher (`stallpoint.measure.launch`).
"""

import sys
from pathlib import Path

from stallpoint.cells import cell_from_json
from stallpoint.measure import job
from stallpoint.program import program

if __name__ == "__main__":
    with program():
        text, folder = sys.argv[1:]
        cell = cell_from_json(text)
        job.run(cell, job.measure_of(cell), Path(folder))
