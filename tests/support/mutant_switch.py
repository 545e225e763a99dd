"""Which mutant of the program is active, and which are reached: `mutants` copies this beside the package.

The folder ``$MUTANTS`` says it to all processes that a test starts, MPI ranks and commands included.
"""

import os

_FOLDER = os.environ.get("MUTANTS", "")
RECORDING = -2
_open, _write, _close = os.open, os.write, os.close  # tests replace them
_seen: set[tuple[int, str]] = set()
active = -1
if _FOLDER and os.path.exists(f"{_FOLDER}/active"):
    with open(f"{_FOLDER}/active") as _file:
        active = int(_file.read())


def on(number: int) -> bool:
    """Whether this mutant is active; otherwise, records that it is reached, and by which test where that is known."""
    if active == RECORDING:
        hit = (number, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0])
        if hit not in _seen:
            _seen.add(hit)
            file = _open(f"{_FOLDER}/hits", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            _write(file, f"{number}\t{hit[1]}\n".encode())
            _close(file)
    return number == active
