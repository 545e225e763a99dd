"""Networks of the papers with a quarter of their channels: the same layers in the same order, for slow nodes.

Products and gradients shrink by about 16, so that an iteration takes seconds where a node has a fifth of a core and
400 Mbit/s. Images keep their size.
"""

from __future__ import annotations

from torch import nn

from stallpoint.networks import alexnet as full_alexnet
from stallpoint.networks import googlenet as full_googlenet
from stallpoint.networks import resnet

NARROWER = 4
_KEPT = (3, 1000)
"""An image's channels, and the classes."""


def alexnet() -> nn.Module:
    """AlexNet, for images of 227 x 227 pixels."""
    return _narrow(full_alexnet.alexnet())


def googlenet() -> nn.Module:
    """GoogLeNet, for images of 224 x 224 pixels."""
    return _narrow(full_googlenet.googlenet())


def resnet50() -> nn.Module:
    """ResNet-50, for images of 224 x 224 pixels."""
    return _narrow(resnet.resnet(3, 4, 6, 3))


def _width(channels: int) -> int:
    return channels if channels in _KEPT else channels // NARROWER


def _narrow(network: nn.Module) -> nn.Module:
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Conv2d):
                narrow: nn.Module = nn.Conv2d(
                    _width(child.in_channels),
                    _width(child.out_channels),
                    child.kernel_size,  # type: ignore[arg-type]  # a pair, as given
                    child.stride,  # type: ignore[arg-type]
                    child.padding,  # type: ignore[arg-type]
                    groups=child.groups,
                    bias=child.bias is not None,
                )
            elif isinstance(child, nn.BatchNorm2d):
                narrow = nn.BatchNorm2d(_width(child.num_features))
            elif isinstance(child, nn.Linear):
                narrow = nn.Linear(_width(child.in_features), _width(child.out_features))
            else:
                continue
            setattr(module, name, narrow)
    return network
