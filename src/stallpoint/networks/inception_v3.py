"""Inception-v3 in training form: with the auxiliary classifier, and batch normalisation throughout.

Szegedy et al.: Rethinking the Inception Architecture for Computer Vision, CVPR 2016, Table 1 and section 4. Filters
that Table 1 leaves open are those of the published model (TensorFlow's slim, torchvision). The network cannot train on
one sample, as the auxiliary classifier normalises maps of one pixel.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn
from typing_extensions import override

from stallpoint.networks.layers import Concat, Loss, TotalLoss

CLASSES = 1000
AUXILIARY_WEIGHT = 0.4


def _convolution(
    channels: int, filters: int, kernel: int | tuple[int, int], stride: int = 1, padding: int | tuple[int, int] = 0
) -> nn.Sequential:
    """Return a convolution without bias, its batch normalisation and its ReLU."""
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(channels, filters, kernel, stride, padding, bias=False),
            bn=nn.BatchNorm2d(filters, eps=0.001),
            relu=nn.ReLU(inplace=True),
        )
    )


def _conv_list(channels: int, *steps: tuple[int, int, int]) -> nn.Sequential:
    """Return consecutive convolutions that keep the image's size; a step is (filters, kernel height, kernel width)."""
    convolutions = nn.Sequential()
    for filters, height, width in steps:
        kernel = (height, width)
        convolutions.append(_convolution(channels, filters, kernel, padding=(height // 2, width // 2)))
        channels = filters
    return convolutions


def _pooling_branch(channels: int, filters: int) -> nn.Sequential:
    """Return average pooling that keeps the image's size, and a 1x1 convolution."""
    return nn.Sequential(nn.AvgPool2d(kernel_size=3, stride=1, padding=1), _convolution(channels, filters, 1))


class InceptionBlock(nn.Module):
    """Branches over the same input, joined along the channels."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        for name, branch in branches.items():
            self.add_module(name, branch)
        self.concat = Concat()

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map values [b, channels, h, w] to [b, sum of the branches' filters, h', w']; a block may halve h and w."""
        *branches, concat = self.children()
        feature_maps: torch.Tensor = concat(*(branch(values) for branch in branches))
        return feature_maps


def _block_35x35(channels: int, pool_filters: int) -> InceptionBlock:
    """Return the block for images of 35 x 35 (figure 5); its output has 224 + `pool_filters` channels."""
    return InceptionBlock(
        conv_1x1=_convolution(channels, 64, 1),
        conv_5x5=_conv_list(channels, (48, 1, 1), (64, 5, 5)),
        conv_3x3_twice=_conv_list(channels, (64, 1, 1), (96, 3, 3), (96, 3, 3)),
        pool=_pooling_branch(channels, pool_filters),
    )


def _block_17x17(width: int) -> InceptionBlock:
    """Return the block for images of 17 x 17 (figure 6, with 1x7 and 7x1 convolutions); its output has 768 channels."""
    steps_7x7 = ((width, 1, 1), (width, 1, 7), (192, 7, 1))
    steps_7x7_twice = ((width, 1, 1), (width, 7, 1), (width, 1, 7), (width, 7, 1), (192, 1, 7))
    return InceptionBlock(
        conv_1x1=_convolution(768, 192, 1),
        conv_7x7=_conv_list(768, *steps_7x7),
        conv_7x7_twice=_conv_list(768, *steps_7x7_twice),
        pool=_pooling_branch(768, 192),
    )


def _forked_stack(channels: int, *steps: tuple[int, int, int]) -> nn.Sequential:
    """Return consecutive convolutions by `steps`, and after them a 1x3 and a 3x1 convolution side by side."""
    last_convolutions = InceptionBlock(conv_1x3=_conv_list(384, (384, 1, 3)), conv_3x1=_conv_list(384, (384, 3, 1)))
    return nn.Sequential(*_conv_list(channels, *steps), last_convolutions)


def _block_8x8(channels: int) -> InceptionBlock:
    """Return the block for images of 8 x 8 (figure 7); its output has 2048 channels."""
    return InceptionBlock(
        conv_1x1=_convolution(channels, 320, 1),
        conv_3x3=_forked_stack(channels, (384, 1, 1)),
        conv_3x3_twice=_forked_stack(channels, (448, 1, 1), (384, 3, 3)),
        pool=_pooling_branch(channels, 192),
    )


def _reduction_to_17() -> InceptionBlock:
    """Return the block of figure 10, which halves images of 35 x 35; its input has 288 channels, its output 768."""
    return InceptionBlock(
        conv_3x3=_convolution(288, 384, 3, stride=2),
        conv_3x3_twice=_conv_list(288, (64, 1, 1), (96, 3, 3)).append(_convolution(96, 96, 3, stride=2)),
        pool=nn.MaxPool2d(kernel_size=3, stride=2),
    )


def _reduction_to_8() -> InceptionBlock:
    """Return a block that halves images of 17 x 17; its input has 768 channels, its output 1280."""
    return InceptionBlock(
        conv_3x3=_conv_list(768, (192, 1, 1)).append(_convolution(192, 320, 3, stride=2)),
        conv_7x7_3x3=_conv_list(768, (192, 1, 1), (192, 1, 7), (192, 7, 1)).append(_convolution(192, 192, 3, stride=2)),
        pool=nn.MaxPool2d(kernel_size=3, stride=2),
    )


def _auxiliary_classifier() -> nn.Sequential:
    """Return the auxiliary classifier for images of 17 x 17."""
    return nn.Sequential(
        OrderedDict(
            pool=nn.AvgPool2d(kernel_size=5, stride=3),
            conv_1x1=_convolution(768, 128, 1),
            conv_5x5=_convolution(128, 768, 5),
            flatten=nn.Flatten(),
            fc=nn.Linear(768, CLASSES),
        )
    )


class InceptionV3(nn.Module):
    """Inception-v3, 48 layers deep; an auxiliary classifier takes the last images of 17 x 17 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            OrderedDict(
                conv1=_convolution(3, 32, 3, stride=2),
                conv2=_convolution(32, 32, 3),
                conv3=_convolution(32, 64, 3, padding=1),
                pool3=nn.MaxPool2d(kernel_size=3, stride=2),
                conv4=_convolution(64, 80, 1),
                conv5=_convolution(80, 192, 3),
                pool5=nn.MaxPool2d(kernel_size=3, stride=2),
            )
        )
        self.mixed_35 = nn.Sequential(_block_35x35(192, 32), _block_35x35(256, 64), _block_35x35(288, 64))
        self.mixed_17 = nn.Sequential(_reduction_to_17(), *map(_block_17x17, (128, 160, 160, 192)))
        self.auxiliary = _auxiliary_classifier()
        self.loss1 = Loss(AUXILIARY_WEIGHT)
        self.mixed_8 = nn.Sequential(_reduction_to_8(), _block_8x8(1280), _block_8x8(2048))
        self.pool = nn.AvgPool2d(kernel_size=8)
        self.drop = nn.Dropout(0.5)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(2048, CLASSES)
        self.loss2 = Loss()
        self.loss = TotalLoss()

    @override
    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Map images [b, 3, 299, 299] and labels [b] to the loss, with the auxiliary loss."""
        values = self.mixed_17(self.mixed_35(self.stem(images)))
        loss1 = self.loss1(self.auxiliary(values), labels)
        values = self.flatten(self.drop(self.pool(self.mixed_8(values))))
        loss2 = self.loss2(self.fc(values), labels)
        total_loss: torch.Tensor = self.loss(loss1, loss2)
        return total_loss


def inception_v3() -> nn.Module:
    """Return the network for images of 299 x 299 pixels."""
    return InceptionV3()
