"""ResNet-50, -101 and -152, the first version: a block that halves the image does so in its first 1x1 convolution.

He, Zhang, Ren & Sun: Deep Residual Learning for Image Recognition, CVPR 2016, Table 1 and section 4.1.
"""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from stallpoint.networks.layers import Add, Classifier

CLASSES = 1000
EXPANSION = 4
"""Ratio of a block's output channels to the channels of its bottleneck."""


def _convolution(channels: int, filters: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias, because the batch normalisation after it adds one."""
    return nn.Conv2d(channels, filters, kernel, stride, padding=kernel // 2, bias=False)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut around them."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        output = EXPANSION * width
        self.conv1 = _convolution(channels, width, 1, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv2 = _convolution(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv3 = _convolution(width, output, 1)
        self.bn3 = nn.BatchNorm2d(output)
        self.projects = channels != output
        if self.projects:
            self.shortcut_conv = _convolution(channels, output, 1, stride)
            self.shortcut_bn = nn.BatchNorm2d(output)
        self.add = Add()
        self.relu3 = nn.ReLU(inplace=True)

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map values [b, channels, h, w] to [b, 4·width, h/stride, w/stride]."""
        residual = self.relu1(self.bn1(self.conv1(values)))
        residual = self.relu2(self.bn2(self.conv2(residual)))
        residual = self.bn3(self.conv3(residual))
        shortcut = self.shortcut_bn(self.shortcut_conv(values)) if self.projects else values
        output: torch.Tensor = self.relu3(self.add(residual, shortcut))
        return output


def _stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels, width, stride)
    return nn.Sequential(first, *(Bottleneck(EXPANSION * width, width, 1) for _ in range(blocks - 1)))


def resnet(*blocks: int) -> nn.Module:
    """Return the network for images of 224 x 224 pixels; `blocks` are the numbers of blocks in its four stages."""
    first, second, third, fourth = blocks
    return Classifier(
        conv1=_convolution(3, 64, 7, stride=2),
        bn1=nn.BatchNorm2d(64),
        relu1=nn.ReLU(inplace=True),
        pool1=nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
        conv2=_stage(64, 64, first, stride=1),
        conv3=_stage(256, 128, second, stride=2),
        conv4=_stage(512, 256, third, stride=2),
        conv5=_stage(1024, 512, fourth, stride=2),
        pool5=nn.AvgPool2d(kernel_size=7),
        flatten=nn.Flatten(),
        fc=nn.Linear(512 * EXPANSION, CLASSES),
    )
