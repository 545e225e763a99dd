"""Asking programs of Slurm's, and which clusters they are to look at."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection
from typing import TypeAlias

PATIENCE = 60.0
"""How long to wait for Slurm's controller, s: that of a large cluster may be busy for tens of seconds."""

Ask: TypeAlias = Callable[[list[str]], str | None]
"""Runs a command and returns its output, None where it failed."""


def output_of(command: list[str], patience: float = PATIENCE) -> str | None:
    """Output of a program; None where it is not there, fails, or takes longer than `patience` [s]."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=patience, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def on_clusters(names: Collection[str]) -> list[str]:
    """The option of Slurm's programs that names clusters; none for the local one."""
    return [f"--clusters={','.join(sorted(names))}"] if names else []
