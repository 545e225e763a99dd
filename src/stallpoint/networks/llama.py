"""Llama-style decoders: RMSNorm before each part of a block, rotary positions, and a gated perceptron (SwiGLU).

Touvron et al.: LLaMA, 2023, section 2.2; Zhang & Sennrich 2019 (RMSNorm), Su et al. 2021 (rotary positions), Shazeer
2020 (SwiGLU). One fully-connected layer computes queries, keys and values, which is equivalent to three layers.
"""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from stallpoint.networks.layers import Add, Classifier, Multiply, RotaryAttention

EPSILON = 1e-5


class LlamaBlock(nn.Module):
    """Causal self-attention and a perceptron of three layers, without biases, for vectors of `width`.

    The heads of each of the `groups` use the same keys and values (Ainslie et al. 2023, grouped-query attention).
    """

    def __init__(self, width: int, heads: int, groups: int, hidden_width: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(width, EPSILON)
        self.qkv = nn.Linear(width, width + 2 * groups * width // heads, bias=False)
        self.attention = RotaryAttention(heads, groups)
        self.projection = nn.Linear(width, width, bias=False)
        self.add1 = Add()
        self.norm2 = nn.RMSNorm(width, EPSILON)
        self.gate = nn.Linear(width, hidden_width, bias=False)
        self.silu = nn.SiLU()
        self.up = nn.Linear(width, hidden_width, bias=False)
        self.multiply = Multiply()
        self.down = nn.Linear(hidden_width, width, bias=False)
        self.add2 = Add()

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map values [b, length, width] to values of the same shape."""
        values = self.add1(values, self.projection(self.attention(self.qkv(self.norm1(values)))))
        normalised_values = self.norm2(values)
        output: torch.Tensor = self.add2(
            values, self.down(self.multiply(self.silu(self.gate(normalised_values)), self.up(normalised_values)))
        )
        return output


def stories_15m() -> nn.Module:
    """Return a decoder of 15 million parameters, whose output layer has the weights of the embedding."""
    network = _llama(vocabulary=32000, width=288, heads=6, groups=6, hidden=768, blocks=6)
    network.get_submodule("output").weight = network.get_submodule("embedding").weight
    return network


def tiny_llama() -> nn.Module:
    """Return a decoder of 1.1 billion parameters, with 4 groups of 8 heads."""
    return _llama(vocabulary=32000, width=2048, heads=32, groups=4, hidden=5632, blocks=22)


def _llama(*, vocabulary: int, width: int, heads: int, groups: int, hidden: int, blocks: int) -> nn.Module:
    return Classifier(
        embedding=nn.Embedding(vocabulary, width),
        **{f"block{number}": LlamaBlock(width, heads, groups, hidden) for number in range(1, blocks + 1)},
        norm=nn.RMSNorm(width, EPSILON),
        output=nn.Linear(width, vocabulary, bias=False),
    )
