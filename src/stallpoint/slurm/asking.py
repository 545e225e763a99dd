"""How Slurm's programs are run, and the option by which they ask certain clusters."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection
from typing import TypeAlias

PATIENCE = 60.0
"""Time to wait for a program of Slurm, s: on a large cluster Slurm's controller may be busy for tens of seconds."""

Ask: TypeAlias = Callable[[list[str]], str | None]
"""Function that runs a command and returns its output; None if the command failed."""


def output_of(command: list[str], patience: float = PATIENCE) -> str | None:
    """Return the output of a program; None if the program is missing, fails, or takes longer than `patience` s."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=patience, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def on_clusters(clusters: Collection[str]) -> list[str]:
    """Return the option by which Slurm's programs ask certain clusters; an empty list for the local cluster."""
    return [f"--clusters={','.join(sorted(clusters))}"] if clusters else []
