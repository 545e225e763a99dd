# What every set of rules needs, whether they are about a study of one's own or about others: the code of their scripts.
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from stallpoint.errors import InputError
from stallpoint.sources import sources_of

LIBRARY = Path(workflow.basedir, "src/stallpoint")

# Rules use the Python that Snakemake itself runs in, also on nodes and when its environment is not activated.
shell.prefix(f"set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; ")


def code_of(script, also=lambda wildcards: ()):
    """Function to the files of the library that a script is made of: what it derives is stale once they change.

    `also` gives the modules that the script loads by name. Rules that measure have no such input.
    """

    def files(wildcards):
        found = sources_of(Path(workflow.basedir, "scripts", script), LIBRARY, also(wildcards))
        return list(map(os.path.relpath, found))

    return files
