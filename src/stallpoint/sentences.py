"""Parts of sentences that pages, messages and charts have in common."""

from __future__ import annotations

from collections.abc import Sequence


def listed(texts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1]))) if texts else ""
