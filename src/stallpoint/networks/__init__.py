"""The networks that can be trained, by name.

This registry imports no tensor library, so that a study can be checked in an instant; a network's own
module is imported when it is built. To add a network, write a module with a function ``build()`` that
returns an `nn.Module` mapping ``(images, labels)`` to its loss, made of the layers that
`stallpoint.networks.layers` knows in the order in which they run, and add one entry here.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from stallpoint.errors import InputError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Network:
    """What is known of a network before it is built."""

    name: str
    module: str
    """Python module with the function ``build()``."""
    image_size: int
    """Rows and columns of the images it takes, pixels."""
    parameters: int
    """Learned values in all."""
    largest_layer_bytes: int
    """Gradients of the layer that has most of them, bytes."""
    description: str
    source: str

    @property
    def gradient_bytes(self) -> int:
        """Gradients of all layers, bytes."""
        return 4 * self.parameters

    def outline(self) -> nn.Module:
        """The network without values (PyTorch's meta device): its layers and shapes cost nothing."""
        import torch

        with torch.device("meta"):
            network: nn.Module = import_module(self.module).build()
        return network

    def build(self, seed: int) -> nn.Module:
        """The network in training mode with fresh weights, the same for the same seed."""
        from stallpoint.networks.layers import initialise

        network = self.outline().to_empty(device="cpu")
        initialise(network, seed)
        return network


NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        Network(
            name="alexnet",
            module="stallpoint.networks.alexnet",
            image_size=227,
            parameters=60_965_224,
            largest_layer_bytes=151_011_328,
            description="AlexNet in Caffe's one-tower form: grouped convolutions, local response normalisation",
            source="Krizhevsky, Sutskever & Hinton (2012); Caffe's bvlc_alexnet",
        ),
        Network(
            name="googlenet",
            module="stallpoint.networks.googlenet",
            image_size=224,
            parameters=13_378_280,
            largest_layer_bytes=8_392_704,
            description="GoogLeNet as trained, with both auxiliary classifiers, without batch normalisation",
            source="Szegedy et al. (2015); Caffe's bvlc_googlenet",
        ),
        Network(
            name="resnet50",
            module="stallpoint.networks.resnet50",
            image_size=224,
            parameters=25_557_032,
            largest_layer_bytes=9_437_184,
            description="ResNet-50, first version: the stride is in a block's first 1x1 convolution",
            source="He, Zhang, Ren & Sun (2016), Table 1",
        ),
    )
}


def find(name: str) -> Network:
    """The network called `name`; `InputError` lists the known ones."""
    try:
        return NETWORKS[name]
    except KeyError:
        raise InputError(f"network {name!r}: unknown; known networks are {', '.join(NETWORKS)}") from None
