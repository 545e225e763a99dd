"""VGG-16 and VGG-19, configurations D and E of the paper (names follow Caffe's VGG_ILSVRC_16_layers).

Simonyan & Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition, ICLR 2015, Table 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from stallpoint.networks.layers import Classifier

CLASSES = 1000
FILTERS = (64, 128, 256, 512, 512)
"""Filters of the convolutions of each block; pooling halves the image after each block."""


def _convolution_layers(convolution_counts: tuple[int, ...]) -> Iterator[tuple[str, nn.Module]]:
    channels = 3
    for block, (filters, convolutions) in enumerate(zip(FILTERS, convolution_counts, strict=True), 1):
        for number in range(1, convolutions + 1):
            yield f"conv{block}_{number}", nn.Conv2d(channels, filters, kernel_size=3, padding=1)
            yield f"relu{block}_{number}", nn.ReLU(inplace=True)
            channels = filters
        yield f"pool{block}", nn.MaxPool2d(kernel_size=2, stride=2)


def vgg(*convolutions: int) -> nn.Module:
    """Return the network for images of 224 x 224 pixels; `convolutions` are the numbers in its five blocks."""
    return Classifier(
        **dict(_convolution_layers(convolutions)),
        flatten=nn.Flatten(),
        fc6=nn.Linear(512 * 7 * 7, 4096),
        relu6=nn.ReLU(inplace=True),
        drop6=nn.Dropout(0.5),
        fc7=nn.Linear(4096, 4096),
        relu7=nn.ReLU(inplace=True),
        drop7=nn.Dropout(0.5),
        fc8=nn.Linear(4096, CLASSES),
    )
