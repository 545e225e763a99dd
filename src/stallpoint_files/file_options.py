"""The user's options for files."""

from __future__ import annotations

from dataclasses import dataclass

from stallpoint.base.curve import THRESHOLD


@dataclass(frozen=True)
class Options:
    """The user's options for files."""

    of: str = ""
    """`EACH` or `ALL`: whether rates are per worker or totals."""
    scaling: str = ""
    """`WEAK` or `STRONG`."""
    threshold: float = THRESHOLD
    workers_per_node: float | None = None
    batch: float | None = None
    """Samples of a worker's mini-batch."""
    workers: tuple[int, ...] = ()
    """Worker counts of logs, in the order of the files."""
    pattern: str = ""
    """A regular expression for training logs, with a group ``rate`` or ``seconds``."""
    link: str = ""
    """Link between nodes, a name of `links.links` or Gbit/s."""
    setup: str = ""
    """Model, precision and hardware in words."""
    at: tuple[int, ...] = ()
    """Worker counts to predict; if empty, the next one after the largest measured count."""
    at_batch: float | None = None
    """Global mini-batch at the worker counts of `at`, samples."""
