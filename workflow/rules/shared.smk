# What rules need that are about no study of their own: the code of their scripts, and the studies that are compared.
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

import stallpoint
from stallpoint.archive.comparison.comparison_files import files_of
from stallpoint.errors import InputError
from stallpoint.strategies.families import PREDICTING_MODULES
from stallpoint.study.configuration import check_keys
from stallpoint.sources import sources_of

# Where the workflow is, if that is a folder: one that is deployed from a Git host is fetched file by file.
ROOT = Path(workflow.snakefile).parents[2]
LIBRARY = Path(stallpoint.__file__).parent

# Rules use the Python that Snakemake itself runs in, also on nodes and when its environment is not activated.
shell.prefix(f"set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; ")


def checked(file):
    """The configuration file, if it can be read at all: Snakemake's own reader ends in a traceback."""
    try:
        check_keys(Path(file))
    except InputError as error:
        raise WorkflowError(str(error)) from None
    return file


def file_of_workflow(path):
    """A file of the workflow, by its path below the root: seen from here, or Snakemake's copy of it."""
    file = Path(ROOT, path)
    return os.path.relpath(file) if file.exists() else workflow.source_path(f"../../{path}")


def code_of(script, also=lambda wildcards: ()):
    """Function to the files of the library that a script is made of: what it derives is stale once they change.

    `also` gives the modules that the script loads by name. Rules that measure have no such input.
    """

    def files(wildcards):
        found = sources_of(Path(file_of_workflow(f"scripts/{script}")), LIBRARY, also(wildcards))
        return list(map(os.path.relpath, found))

    return files


def compared(entry):
    """What `old` or `new` of the configuration names."""
    if entry not in config:
        raise WorkflowError(
            f"{entry} is missing: snakemake compare --config old=OLD new=NEW, each an archive (.zip) or a study in results/"
        )
    return str(config[entry])


def files_compared(entry):
    """The files that are read of it."""

    def files(wildcards):
        try:
            return list(map(str, files_of(compared(entry), entry)))
        except InputError as error:
            raise WorkflowError(str(error)) from None

    return files
