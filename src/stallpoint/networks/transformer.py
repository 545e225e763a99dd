"""The block of ViT and GPT-2: attention and a perceptron, each with a normalised input and a residual connection.

Vaswani et al.: Attention Is All You Need, NIPS 2017; normalisation comes first, as in both networks.
"""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from stallpoint.networks.layers import Add, Attention

EXPANSION = 4
"""Width inside the perceptron over the width of the block."""


class TransformerBlock(nn.Module):
    """Self-attention, then two fully-connected layers, for vectors of `width`.

    `gelu_approximation` is for `nn.GELU`, `epsilon` for `nn.LayerNorm`. Attention is one operation without dropout.
    """

    def __init__(
        self, width: int, heads: int, *, causal: bool, dropout: float, gelu_approximation: str, epsilon: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, epsilon)
        self.qkv = nn.Linear(width, 3 * width)
        self.attention = Attention(heads, causal=causal)
        self.projection = nn.Linear(width, width)
        self.drop1 = nn.Dropout(dropout)
        self.add1 = Add()
        self.norm2 = nn.LayerNorm(width, epsilon)
        self.fc1 = nn.Linear(width, EXPANSION * width)
        self.gelu = nn.GELU(gelu_approximation)
        self.fc2 = nn.Linear(EXPANSION * width, width)
        self.drop2 = nn.Dropout(dropout)
        self.add2 = Add()

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map values [b, length, width] to values of the same shape."""
        attention_output = self.projection(self.attention(self.qkv(self.norm1(values))))
        values = self.add1(values, self.drop1(attention_output))
        perceptron_output = self.fc2(self.gelu(self.fc1(self.norm2(values))))
        output: torch.Tensor = self.add2(values, self.drop2(perceptron_output))
        return output
