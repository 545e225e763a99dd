"""The networks that can be trained, by name.

This registry imports no tensor library, so that a study can be checked in an instant; a network's own
module is imported when it is built. To add a network, write a module with a function ``build()`` that
returns an `nn.Module` mapping ``(inputs, labels)`` to its loss, made of leaf modules (see
`stallpoint.networks.layers`), and add one entry here. A study can also name a network of its own
(`stallpoint.networks.own`).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from stallpoint.errors import InputError
from stallpoint.networks.inputs import Images, Inputs, Tokens
from stallpoint.networks.own import own_network

if TYPE_CHECKING:
    from torch import nn

    from stallpoint.cells import SgemmCell, TrainCell


class Network(Protocol):
    """What can be done with a network before it is built."""

    @property
    def name(self) -> str:
        """Its name in studies, paths and charts."""

    @property
    def takes(self) -> Inputs:
        """What one of its samples is."""

    def outline(self) -> nn.Module:
        """The network where running it costs least: its layers and shapes."""

    def build(self, seed: int) -> nn.Module:
        """The network in training mode with fresh weights, the same for the same seed."""


@dataclass(frozen=True)
class RegisteredNetwork:
    """A network of the registry, and what is known of it before it is built."""

    name: str
    module: str
    """Python module with the function ``build()``."""
    takes: Inputs
    parameters: int
    """Learned values in all."""
    largest_layer_bytes: int
    """Gradients of the layer that has most of them, bytes."""
    multiply_adds: int
    """Multiplications (each with an addition) of the matrix products in one sample's forward pass."""
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
        from stallpoint.networks.layers import initialise, with_memory

        network = with_memory(self.outline())
        initialise(network, seed)
        return network


NETWORKS: dict[str, RegisteredNetwork] = {
    network.name: network
    for network in (
        RegisteredNetwork(
            name="alexnet",
            module="stallpoint.networks.alexnet",
            takes=Images(227),
            parameters=60_965_224,
            largest_layer_bytes=151_011_328,
            multiply_adds=724_406_816,
            description="AlexNet in Caffe's one-tower form: grouped convolutions, local response normalisation",
            source="Krizhevsky, Sutskever & Hinton (2012); Caffe's bvlc_alexnet",
        ),
        RegisteredNetwork(
            name="googlenet",
            module="stallpoint.networks.googlenet",
            takes=Images(224),
            parameters=13_378_280,
            largest_layer_bytes=8_392_704,
            multiply_adds=1_591_044_096,
            description="GoogLeNet as trained, with both auxiliary classifiers, without batch normalisation",
            source="Szegedy et al. (2015); Caffe's bvlc_googlenet",
        ),
        RegisteredNetwork(
            name="resnet50",
            module="stallpoint.networks.resnet50",
            takes=Images(224),
            parameters=25_557_032,
            largest_layer_bytes=9_437_184,
            multiply_adds=3_857_973_248,
            description="ResNet-50, first version: the stride is in a block's first 1x1 convolution",
            source="He, Zhang, Ren & Sun (2016), Table 1",
        ),
        RegisteredNetwork(
            name="vgg16",
            module="stallpoint.networks.vgg16",
            takes=Images(224),
            parameters=138_357_544,
            largest_layer_bytes=411_058_176,
            multiply_adds=15_470_264_320,
            description="VGG-16, configuration D: 13 convolutions of 3x3 and three fully-connected layers",
            source="Simonyan & Zisserman (2015), Table 1",
        ),
        RegisteredNetwork(
            name="vit-b-16",
            module="stallpoint.networks.vit_b_16",
            takes=Images(224),
            parameters=86_567_656,
            largest_layer_bytes=9_449_472,
            multiply_adds=17_563_828_224,
            description="ViT-B/16: patches of 16x16 pixels, a class token, 12 encoder blocks, a linear classifier",
            source="Dosovitskiy et al. (2021), Table 1",
        ),
        RegisteredNetwork(
            name="gpt2-small",
            module="stallpoint.networks.gpt2_small",
            takes=Tokens(length=1024, vocabulary=50257),
            parameters=124_439_808,
            largest_layer_bytes=154_389_504,
            multiply_adds=145_824_153_600,
            description="GPT-2 small (124M): 12 decoder blocks; the output layer shares the embedding's weights",
            source="Radford et al. (2019), section 2.3; openai/gpt-2, models/124M",
        ),
    )
}


def network_of(cell: TrainCell | SgemmCell) -> Network:
    """The network of a cell: one of the registry, or the study's own."""
    return find(cell.network) if cell.own_network is None else own_network(cell.network, cell.own_network)


def find(name: str) -> RegisteredNetwork:
    """The registered network called `name`; `InputError` lists the known ones."""
    try:
        return NETWORKS[name]
    except KeyError:
        raise InputError(f"network {name!r}: unknown; known networks are {', '.join(NETWORKS)}") from None
