"""numba is imported only when there is much to do, and compiles also where nothing can be written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import stallpoint

COMPILED = """
import numpy as np
from stallpoint.models.dag import kernels
from stallpoint.models.dag.compilation import compiled
chain = np.arange(4, dtype=np.int32)
first, follower, before = (np.zeros(size, np.int32) for size in (5, 3, 4))
link = compiled(kernels.link)
link(chain[:-1], chain[1:], first, follower, before)
print(link.nopython_signatures != [], first.tolist(), follower.tolist())
"""


def run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_small_jobs_do_without_numba() -> None:
    program = """
import sys
import stallpoint.models
from stallpoint.models.dag import Costs, Structure, by_layer, s_sgd, schedule
from stallpoint.presets import PRESETS
job = s_sgd(Costs(1, 1, [1] * 20, [2] * 20, by_layer([1] * 20), 1), PRESETS["wfbp"].preset, prefetch=True)
schedule(job.written_out(4, 2)), job.run(iterations=3)
print("numba" in sys.modules)
"""
    assert run(program) == "False"


def test_a_read_only_installation_compiles_without_a_cache(tmp_path: Path) -> None:
    # Not even root can make a folder where a file is.
    shutil.copytree(
        Path(stallpoint.__file__).parent, tmp_path / "stallpoint", ignore=shutil.ignore_patterns("__pycache__")
    )
    for folder in (tmp_path / "stallpoint").rglob("*/"):
        (folder / "__pycache__").touch()
    nowhere = tmp_path / "a file"
    nowhere.touch()
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= dict.fromkeys(("HOME", "XDG_CACHE_HOME"), str(nowhere / "home")) | {"NUMBA_CACHE_DIR": ""}
    assert run(COMPILED, **environment) == "True [0, 1, 2, 3, 3] [1, 2, 3]"
