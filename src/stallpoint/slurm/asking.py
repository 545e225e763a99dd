"""Calls of Slurm's programs, and the option that selects their clusters."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection
from typing import TypeAlias

PATIENCE = 60.0
"""Time to wait for Slurm's controller, s: on a large cluster it may be busy for tens of seconds."""

Ask: TypeAlias = Callable[[list[str]], str | None]
"""Function that runs a command and returns its output, None if it failed."""


def output_of(command: list[str], patience: float = PATIENCE) -> str | None:
    """Return the output of a program; None if it is missing, fails, or takes longer than `patience` s."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=patience, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def on_clusters(names: Collection[str]) -> list[str]:
    """Return the option of Slurm's programs that names clusters; empty for the local one."""
    return [f"--clusters={','.join(sorted(names))}"] if names else []
