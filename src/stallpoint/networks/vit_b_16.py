"""ViT-B/16: a transformer over patches of an image.

Dosovitskiy et al.: An Image is Worth 16x16 Words, ICLR 2021, section 3.1 and Table 1 (ViT-Base); dropout as in Table 3
(ImageNet). The classifier is one fully-connected layer, as for fine-tuning and in torchvision's vit_b_16.
"""

from __future__ import annotations

from torch import nn

from stallpoint.networks.layers import Classifier, ClassToken, FirstToken, Positions, Sequence
from stallpoint.networks.transformer import TransformerBlock

CLASSES = 1000
SIZE, PATCH = 224, 16
WIDTH, HEADS, BLOCKS = 768, 12, 12
DROPOUT = 0.1
EPSILON = 1e-6
"""Epsilon of the normalisations, as in the authors' own code (Flax's default)."""


def _block() -> nn.Module:
    return TransformerBlock(WIDTH, HEADS, causal=False, dropout=DROPOUT, gelu_approximation="none", epsilon=EPSILON)


def vit_b_16() -> nn.Module:
    """Return the network for images of 224 x 224 pixels."""
    return Classifier(
        patches=nn.Conv2d(3, WIDTH, kernel_size=PATCH, stride=PATCH),
        sequence=Sequence(),
        class_token=ClassToken(WIDTH),
        positions=Positions(1 + (SIZE // PATCH) ** 2, WIDTH),
        drop=nn.Dropout(DROPOUT),
        **{f"block{number}": _block() for number in range(1, BLOCKS + 1)},
        norm=nn.LayerNorm(WIDTH, EPSILON),
        first=FirstToken(),
        classifier=nn.Linear(WIDTH, CLASSES),
    )
