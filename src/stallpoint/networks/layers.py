"""What networks are made of: layers, so that each can be named, typed and timed.

In the networks here every operation is a leaf module; a user's network may be any module.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from stallpoint.errors import InputError


class Concat(nn.Module):
    """Joins feature maps along the channels."""

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Tensors [b, c_i, h, w] to one of [b, sum of c_i, h, w]."""
        return torch.cat(inputs, dim=1)


class Add(nn.Module):
    """Adds two tensors of the same shape."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """The sum, in new memory."""
        return left + right


class Loss(nn.Module):
    """Softmax and cross-entropy, averaged over the mini-batch, times a weight."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Logits [b, classes] and labels [b] to a scalar."""
        return self.weight * functional.cross_entropy(logits, labels)


class TotalLoss(nn.Module):
    """Adds the losses of several classifiers."""

    def forward(self, *losses: torch.Tensor) -> torch.Tensor:
        """Scalars to their sum."""
        return torch.stack(losses).sum()


class Classifier(nn.Module):
    """Layers (or blocks of them) applied one after the other, and a loss at the end, named ``loss``."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.loss = Loss()

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Images [b, 3, size, size] and labels [b] to the loss."""
        *layers, loss = self.children()
        values = images
        for layer in layers:
            values = layer(values)
        total: torch.Tensor = loss(values, labels)
        return total


LAYER_TYPES: dict[type[nn.Module], str] = {
    nn.Conv2d: "convolution",
    nn.Linear: "fully-connected",
    nn.ReLU: "relu",
    nn.MaxPool2d: "pooling",
    nn.AvgPool2d: "pooling",
    nn.LocalResponseNorm: "lrn",
    nn.BatchNorm2d: "batch-norm",
    nn.Dropout: "dropout",
    nn.Flatten: "flatten",
    Concat: "concat",
    Add: "add",
    Loss: "loss",
    TotalLoss: "loss",
}


OTHER = "other"
"""Type of layers that `LAYER_TYPES` does not know."""


@dataclass(frozen=True)
class Layer:
    """A module with work of its own: a leaf module, or a container that holds parameters itself."""

    name: str
    """Path of the module, e.g. ``inception_3a.conv_1x1.conv``; of the network itself, the name of its class."""
    type: str
    """A value of `LAYER_TYPES`, or `OTHER`."""
    module: nn.Module
    parameters: list[nn.Parameter]
    """What the layer learns: weight and bias, say, or nothing. Each parameter belongs to one layer."""

    @property
    def gradient_bytes(self) -> int:
        """Size of its gradients; 0 where nothing is learned."""
        return sum(parameter.nbytes for parameter in self.parameters)


def layers(network: nn.Module) -> list[Layer]:
    """The layers of `network` in the order in which its modules were added (here: in which they run, the loss last).

    A module used in several places is one layer. A parameter that several modules share belongs to the first;
    one that is frozen (``requires_grad`` is False) belongs to none, for nothing is to be learned. Raises `InputError`
    for compiled modules, whose parts cannot be told apart.
    """
    found: list[Layer] = []
    taken: set[int] = set()
    for name, module in network.named_modules():
        if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
            raise InputError(
                f"network: {name or type(network).__name__} is compiled (torch.compile or TorchScript), so that its "
                "layers cannot be timed; give the module it was compiled from"
            )
        own = list(module.parameters(recurse=False))
        if own or next(module.children(), None) is None:
            learned = [parameter for parameter in own if parameter.requires_grad and id(parameter) not in taken]
            taken.update(map(id, learned))
            found.append(Layer(name or type(module).__name__, _layer_type(module), module, learned))
    return found


def _layer_type(module: nn.Module) -> str:
    """The type of the module's class, or of the nearest class it is derived from."""
    return next((LAYER_TYPES[kind] for kind in type(module).__mro__ if kind in LAYER_TYPES), OTHER)


def initialise(network: nn.Module, seed: int) -> None:
    """Draw the weights of convolutions and fully-connected layers; biases start at 0.

    The variance is 1/inputs (Caffe's "xavier" filler, bvlc_googlenet's choice): the loss then starts near
    ln(classes), with and without batch normalisation.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="linear", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
