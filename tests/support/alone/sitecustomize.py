"""Leaves of the library only what lies in the folder `ALONE`, as if nothing else were installed; Python runs this when
its path has this folder."""

import os
import sys

sys.path[:] = [path for path in sys.path if path == os.environ["ALONE"] or not os.path.isdir(f"{path}/stallpoint")]
