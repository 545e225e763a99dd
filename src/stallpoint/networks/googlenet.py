"""GoogLeNet as in Caffe's bvlc_googlenet, with its names and both auxiliary classifiers.

Szegedy et al.: Going Deeper with Convolutions, CVPR 2015, Table 1 and section 5.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn
from typing_extensions import override

from stallpoint.networks.layers import Concat, Loss, TotalLoss, convolution, normalisation, pooling

CLASSES = 1000
AUXILIARY_WEIGHT = 0.3


class Inception(nn.Module):
    """Four branches over the same input (1x1, 3x3 and 5x5 convolutions, and pooling), joined along the channels."""

    def __init__(self, channels: int, out1: int, reduce3: int, out3: int, reduce5: int, out5: int, pool: int) -> None:
        super().__init__()
        self.conv_1x1 = convolution(channels, out1, 1)
        self.conv_3x3_reduce = convolution(channels, reduce3, 1)
        self.conv_3x3 = convolution(reduce3, out3, 3)
        self.conv_5x5_reduce = convolution(channels, reduce5, 1)
        self.conv_5x5 = convolution(reduce5, out5, 5)
        self.pool = nn.MaxPool2d(kernel_size=3, stride=1, padding=1)
        self.pool_proj = convolution(channels, pool, 1)
        self.output = Concat()

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map values [b, channels, h, w] to [b, sum of the branches' filters, h, w]."""
        feature_maps: torch.Tensor = self.output(
            self.conv_1x1(values),
            self.conv_3x3(self.conv_3x3_reduce(values)),
            self.conv_5x5(self.conv_5x5_reduce(values)),
            self.pool_proj(self.pool(values)),
        )
        return feature_maps


def _auxiliary_classifier(channels: int) -> nn.Sequential:
    """Return an auxiliary classifier for feature maps of 14 x 14 pixels; its loss adds gradients to earlier layers."""
    return nn.Sequential(
        OrderedDict(
            ave_pool=nn.AvgPool2d(kernel_size=5, stride=3),
            conv=convolution(channels, 128, 1),
            flatten=nn.Flatten(),
            fc=nn.Linear(128 * 4 * 4, 1024),
            relu_fc=nn.ReLU(inplace=True),
            drop_fc=nn.Dropout(0.7),
            classifier=nn.Linear(1024, CLASSES),
        )
    )


class GoogLeNet(nn.Module):
    """GoogLeNet: 22 layers with weights up to the main classifier; two auxiliary classifiers branch off earlier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = convolution(3, 64, 7, stride=2)
        self.pool1 = pooling()
        self.norm1 = normalisation()
        self.conv2_reduce = convolution(64, 64, 1)
        self.conv2 = convolution(64, 192, 3)
        self.norm2 = normalisation()
        self.pool2 = pooling()
        self.inception_3a = Inception(192, 64, 96, 128, 16, 32, 32)
        self.inception_3b = Inception(256, 128, 128, 192, 32, 96, 64)
        self.pool3 = pooling()
        self.inception_4a = Inception(480, 192, 96, 208, 16, 48, 64)
        self.classifier1 = _auxiliary_classifier(512)
        self.loss1 = Loss(AUXILIARY_WEIGHT)
        self.inception_4b = Inception(512, 160, 112, 224, 24, 64, 64)
        self.inception_4c = Inception(512, 128, 128, 256, 24, 64, 64)
        self.inception_4d = Inception(512, 112, 144, 288, 32, 64, 64)
        self.classifier2 = _auxiliary_classifier(528)
        self.loss2 = Loss(AUXILIARY_WEIGHT)
        self.inception_4e = Inception(528, 256, 160, 320, 32, 128, 128)
        self.pool4 = pooling()
        self.inception_5a = Inception(832, 256, 160, 320, 32, 128, 128)
        self.inception_5b = Inception(832, 384, 192, 384, 48, 128, 128)
        self.pool5 = nn.AvgPool2d(kernel_size=7)
        self.drop5 = nn.Dropout(0.4)
        self.flatten = nn.Flatten()
        self.classifier3 = nn.Linear(1024, CLASSES)
        self.loss3 = Loss()
        self.loss = TotalLoss()

    @override
    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Map images [b, 3, 224, 224] and labels [b] to the loss, with both auxiliary losses."""
        values = self.norm1(self.pool1(self.conv1(images)))
        values = self.pool2(self.norm2(self.conv2(self.conv2_reduce(values))))
        values = self.pool3(self.inception_3b(self.inception_3a(values)))
        values = self.inception_4a(values)
        loss1 = self.loss1(self.classifier1(values), labels)
        values = self.inception_4d(self.inception_4c(self.inception_4b(values)))
        loss2 = self.loss2(self.classifier2(values), labels)
        values = self.pool4(self.inception_4e(values))
        values = self.drop5(self.pool5(self.inception_5b(self.inception_5a(values))))
        loss3 = self.loss3(self.classifier3(self.flatten(values)), labels)
        total_loss: torch.Tensor = self.loss(loss1, loss2, loss3)
        return total_loss


def googlenet() -> nn.Module:
    """Return the network for images of 224 x 224 pixels."""
    return GoogLeNet()
