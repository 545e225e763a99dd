"""stallpoint: at how many nodes does distributed training stop getting faster, and why?

Data flows one way: study -> cells -> raw records -> tidy tables -> fitted models ->
charts and conclusions. Nothing in this package imports Snakemake or a scheduler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn
    from torch.optim import Optimizer

    from stallpoint.measure.probe.probe import Probe

__version__ = "0.1.0"


def probe(
    model: nn.Module, optimizer: Optimizer | None = None, *, folder: str | Path | None = None, layers: bool = True
) -> Probe:
    """Return a probe of a training loop of your own, a context manager; see `stallpoint.measure.probe.probe.Probe`."""
    # By name: it loads a tensor library, and whatever imports anything of stallpoint would depend on it (`sources`).
    kind: type[Probe] = import_module("stallpoint.measure.probe.probe").Probe
    return kind(model, optimizer, folder=folder, layers=layers)
