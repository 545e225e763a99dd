"""VGG-16, configuration D of the paper (names follow Caffe's VGG_ILSVRC_16_layers).

Simonyan & Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition, ICLR 2015, Table 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from stallpoint.networks.layers import Classifier

CLASSES = 1000
BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""Filters of the convolutions of each block; pooling halves the image after each block."""


def _convolutions() -> Iterator[tuple[str, nn.Module]]:
    channels = 3
    for block, widths in enumerate(BLOCKS, 1):
        for number, filters in enumerate(widths, 1):
            yield f"conv{block}_{number}", nn.Conv2d(channels, filters, kernel_size=3, padding=1)
            yield f"relu{block}_{number}", nn.ReLU(inplace=True)
            channels = filters
        yield f"pool{block}", nn.MaxPool2d(kernel_size=2, stride=2)


def build() -> nn.Module:
    """The network for images of 224 x 224 pixels."""
    return Classifier(
        **dict(_convolutions()),
        flatten=nn.Flatten(),
        fc6=nn.Linear(512 * 7 * 7, 4096),
        relu6=nn.ReLU(inplace=True),
        drop6=nn.Dropout(0.5),
        fc7=nn.Linear(4096, 4096),
        relu7=nn.ReLU(inplace=True),
        drop7=nn.Dropout(0.5),
        fc8=nn.Linear(4096, CLASSES),
    )
