"""One rank of a job whose measurement a test may change: ``python planted_job.py CELL FOLDER BODY``.

BODY is Python that may put another function in place of `measure`.
"""

import sys
from pathlib import Path

from stallpoint.errors import CannotRun, InputError  # noqa: F401  # for BODY
from stallpoint.measure import job
from stallpoint.records.tables import COLLECTIVES  # noqa: F401
from stallpoint.study.kinds import cell_from_json, kind_of

text, folder, body = sys.argv[1:]
cell = cell_from_json(text)
measure = kind_of(cell).measure()
exec(body)
job.run(cell, measure, Path(folder))
