"""SqueezeNet 1.0: few parameters, so that there is little to communicate.

Iandola et al.: SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size, 2016
(arXiv:1602.07360), Table 1; names and order of the layers are those of its prototxt for Caffe.
"""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from stallpoint.networks.layers import Classifier, Concat, convolution, pooling

CLASSES = 1000


class Fire(nn.Module):
    """A fire module: a 1x1 convolution reduces the channels; a 1x1 and a 3x3 convolution side by side expand them."""

    def __init__(self, channels: int, reduced_channels: int, branch_channels: int) -> None:
        super().__init__()
        self.squeeze_1x1 = convolution(channels, reduced_channels, 1)
        self.expand_1x1 = convolution(reduced_channels, branch_channels, 1)
        self.expand_3x3 = convolution(reduced_channels, branch_channels, 3)
        self.concat = Concat()

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map values [b, channels, h, w] to [b, 2·branch_channels, h, w]."""
        squeezed_maps = self.squeeze_1x1(values)
        expanded_maps: torch.Tensor = self.concat(self.expand_1x1(squeezed_maps), self.expand_3x3(squeezed_maps))
        return expanded_maps


def squeezenet() -> nn.Module:
    """Return the network for images of 224 x 224 pixels."""
    return Classifier(
        conv1=nn.Conv2d(3, 96, kernel_size=7, stride=2),
        relu1=nn.ReLU(inplace=True),
        pool1=pooling(),
        fire2=Fire(96, 16, 64),
        fire3=Fire(128, 16, 64),
        fire4=Fire(128, 32, 128),
        pool4=pooling(),
        fire5=Fire(256, 32, 128),
        fire6=Fire(256, 48, 192),
        fire7=Fire(384, 48, 192),
        fire8=Fire(384, 64, 256),
        pool8=pooling(),
        fire9=Fire(512, 64, 256),
        drop9=nn.Dropout(0.5),
        conv10=nn.Conv2d(512, CLASSES, kernel_size=1),
        relu10=nn.ReLU(inplace=True),
        pool10=nn.AvgPool2d(kernel_size=13),
        flatten=nn.Flatten(),
    )
