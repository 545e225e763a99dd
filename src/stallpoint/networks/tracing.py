"""Tracing of a network's forward pass by torch.fx."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import fx, nn

from stallpoint.errors import InputError


@contextmanager
def following() -> Iterator[None]:
    """Turn errors of tracing into an `InputError`."""
    try:
        yield
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"torch.fx cannot trace its forward pass: {type(error).__name__}: {reason}") from error


class Tracer(fx.Tracer):
    """Tracer of the calls between layers, not inside them; `leaves` are the layers' ids."""

    def __init__(self, leaves: set[int]) -> None:
        super().__init__()
        self._leaves = leaves

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether the module is not traced into."""
        return id(m) in self._leaves
