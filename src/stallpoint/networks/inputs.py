"""Inputs of networks: images of one size, or sequences of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from typing_extensions import override

if TYPE_CHECKING:
    import torch

IMAGENET_CLASSES = 1000
"""Classes of the challenge's images (Russakovsky et al., 2015)."""
FASHION_MNIST_CLASSES = 10
"""Classes of Fashion-MNIST (Xiao et al., 2017), as many as MNIST's."""


@dataclass(frozen=True)
class Images:
    """Images, in colour or grey, each with its class."""

    kind: ClassVar[str] = "images"

    size: int
    """Number of rows and of columns, pixels."""
    classes: int | None = None
    """Number of classes of the network; None if unknown."""
    channels: int = 3
    """3 (red, green, blue) or 1 (grey)."""

    def example(self, batch: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return zeros: inputs float32 [b, channels, size, size] and labels int64 [b]."""
        import torch

        inputs = torch.zeros(batch, self.channels, self.size, self.size, device=device)
        return inputs, torch.zeros(batch, dtype=torch.int64, device=device)

    @override
    def __str__(self) -> str:
        return f"{'grey ' if self.channels == 1 else ''}images of {self.size}x{self.size} pixels"


@dataclass(frozen=True)
class Tokens:
    """Sequences of tokens; the label of each token is the next token."""

    kind: ClassVar[str] = "tokens"

    length: int
    """Number of tokens of a sequence."""
    vocabulary: int
    """Number of different tokens."""

    def example(self, batch: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return zeros: inputs and labels, both int64 [b, length]."""
        import torch

        inputs = torch.zeros(batch, self.length, dtype=torch.int64, device=device)
        return inputs, torch.zeros_like(inputs)

    @override
    def __str__(self) -> str:
        return f"sequences of {self.length} tokens out of {self.vocabulary}"


Inputs: TypeAlias = Images | Tokens
