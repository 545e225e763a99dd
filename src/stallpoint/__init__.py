"""stallpoint: at how many nodes does distributed training stop getting faster, and why?

Data flows one way: study -> cells -> raw records -> tidy tables -> fitted models ->
charts and conclusions. Nothing in this package imports Snakemake or a scheduler.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn
    from torch.optim import Optimizer

    from stallpoint.measure.probe.probe import Probe

__version__ = "0.1.0"


def probe(
    model: nn.Module, optimizer: Optimizer | None = None, *, folder: str | Path | None = None, layers: bool = True
) -> Probe:
    """Return a context manager that probes your own training loop; see `stallpoint.measure.probe.probe.Probe`."""
    found: Probe = load("measure.probe.probe:Probe")(model, optimizer, folder=folder, layers=layers)
    return found


def snakefile() -> Path:
    """Return the workflow's Snakefile, for a ``module`` in a Snakefile of your own."""
    from pathlib import Path

    packages = Path(__file__).parents[1]
    installed = packages / "stallpoint_workflow/workflow/Snakefile"
    return installed if installed.exists() else packages.parent / "workflow/Snakefile"


def load(name: str) -> Any:
    """Import a class or function by a name such as ``measure.jobs.train:measure``; other packages need the full name.

    Registries (networks, strategies, kinds of job) have names in place of code that needs a tensor library or belongs
    to a higher layer. The code is imported on use, so that the check of a study is fast, and modules that read a
    registry do not depend on the code (`sources`). Only registries name code in texts; a test loads each name.
    """
    module, _, attribute = name.partition(":")
    room = f"{__name__}.{module.partition('.')[0]}"
    return attrgetter(attribute)(import_module(f"{__name__}.{module}" if find_spec(room) else module))
