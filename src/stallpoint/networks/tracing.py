"""Following a network's forward pass by torch.fx: what each layer takes from which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import fx, nn

from stallpoint.errors import InputError


@contextmanager
def following() -> Iterator[None]:
    """Whatever a network does with values that are not there yet, as `InputError`."""
    try:
        yield
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"torch.fx cannot follow its forward pass: {type(error).__name__}: {reason}") from error


class Tracer(fx.Tracer):
    """Follows what happens between layers, and not inside them; `leaves` are their ids."""

    def __init__(self, leaves: set[int]) -> None:
        super().__init__()
        self._leaves = leaves

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether it is called as a whole."""
        return id(m) in self._leaves
