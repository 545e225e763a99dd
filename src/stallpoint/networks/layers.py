"""Layers of networks. Each layer has a name and a type, and can be timed.

In stallpoint's networks every operation is a leaf module and thus a layer; a user's network may consist of any modules.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import fx, nn
from torch.nn import functional
from typing_extensions import override

from stallpoint.errors import InputError


class Concat(nn.Module):
    """Joins feature maps along the channels."""

    @override
    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Map tensors [b, c_i, h, w] to one of [b, sum of c_i, h, w]."""
        return torch.cat(inputs, dim=1)


class Add(nn.Module):
    """Adds two tensors of the same shape."""

    @override
    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Return the sum, in new memory."""
        return first + second


class Multiply(nn.Module):
    """Multiplies two tensors of the same shape, value by value."""

    @override
    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Return the product, in new memory."""
        return first * second


class Sequence(nn.Module):
    """Turns an image's feature maps into a sequence of vectors, row by row."""

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map values [b, width, h, w] to [b, h·w, width]."""
        return values.flatten(2).transpose(1, 2)


class ClassToken(nn.Module):
    """Puts a learned vector before each sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.weight, std=0.02)

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map values [b, length, width] to [b, 1 + length, width]."""
        return torch.cat([self.weight.expand(len(values), 1, -1), values], dim=1)


class Positions(nn.Module):
    """Adds a learned vector for the position to each vector of a sequence of at most `length` vectors."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, width))
        nn.init.normal_(self.weight, std=0.02)

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values [b, length, width] plus positions, in new memory."""
        return values + self.weight[: values.shape[1]]


class Attention(nn.Module):
    """Scaled dot-product self-attention of several heads; if `causal`, each position ignores later positions."""

    def __init__(self, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map queries, keys and values side by side, [b, length, 3·width], to [b, length, width]."""
        batch, length, _ = values.shape
        query, key, value = values.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        heads = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return heads.transpose(1, 2).reshape(batch, length, -1)


class RotaryAttention(nn.Module):
    """Causal self-attention with rotary queries and keys (Su et al. 2021, RoFormer, eq. 34).

    The `heads` are divided into `groups`. All heads of a group use the same keys and values.
    """

    def __init__(self, heads: int, groups: int, base: float = 10000.0) -> None:
        super().__init__()
        self.heads, self.groups, self.base = heads, groups, base

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map queries, keys and values, [b, length, width + 2·groups·width/heads], to [b, length, width]."""
        batch, length, _ = values.shape
        head_values = values.view(batch, length, self.heads + 2 * self.groups, -1).transpose(1, 2)
        query, key, value = torch.split(head_values, [self.heads, self.groups, self.groups], dim=1)
        key, value = (one.repeat_interleave(self.heads // self.groups, dim=1) for one in (self._rotated(key), value))
        heads = functional.scaled_dot_product_attention(self._rotated(query), key, value, is_causal=True)
        return heads.transpose(1, 2).reshape(batch, length, -1)

    def _rotated(self, values: torch.Tensor) -> torch.Tensor:
        """Rotate pair i of the n pairs in each vector [..., length, 2n] by the angle position · base^(-i/n)."""
        length, pairs = values.shape[-2], values.shape[-1] // 2
        frequencies = self.base ** (-torch.arange(pairs, device=values.device) / pairs)
        angles = torch.arange(length, device=values.device)[:, None] * frequencies
        sine, cosine = angles.sin().to(values.dtype), angles.cos().to(values.dtype)
        first, second = values[..., 0::2], values[..., 1::2]
        return torch.stack([first * cosine - second * sine, first * sine + second * cosine], dim=-1).flatten(-2)


class FirstToken(nn.Module):
    """Keeps the first vector of each sequence."""

    @override
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map values [b, length, width] to [b, width]."""
        return values[:, 0]


class Loss(nn.Module):
    """Softmax and cross-entropy, averaged over the mini-batch (and over the tokens), times the loss's weight."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    @override
    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Map logits [b, classes] and labels [b], or [b, length, classes] and [b, length], to a scalar."""
        return self.weight * functional.cross_entropy(logits.flatten(end_dim=-2), labels.flatten())


class TotalLoss(nn.Module):
    """Adds the losses of several classifiers."""

    @override
    def forward(self, *losses: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses."""
        return torch.stack(losses).sum()


def convolution(channels: int, filters: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution, followed by a ReLU; the image's size is divided by `stride`."""
    conv = nn.Conv2d(channels, filters, kernel, stride, padding=kernel // 2)
    return nn.Sequential(OrderedDict(conv=conv, relu=nn.ReLU(inplace=True)))


def normalisation() -> nn.Module:
    """Return Caffe's local response normalisation."""
    return nn.LocalResponseNorm(size=5, alpha=1e-4, beta=0.75, k=1.0)


def pooling() -> nn.Module:
    """Return maxima of overlapping windows, with Caffe's rounding."""
    return nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True)


class Classifier(nn.Module):
    """Layers (or blocks of layers) that run one after the other; the last layer is a loss named ``loss``."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.loss = Loss()

    @override
    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Map inputs and labels (images and classes, or tokens and the next tokens) to the loss."""
        *layers, loss = self.children()
        values = inputs
        for layer in layers:
            values = layer(values)
        total_loss: torch.Tensor = loss(values, labels)
        return total_loss


@fx.wrap  # torch.fx records a call of this function, and does not look inside
def _checked_logits(logits: object, labels: torch.Tensor) -> torch.Tensor:
    """Return the `logits`; raise `InputError` unless they are a tensor with the shape of `labels` and one more axis."""
    if not isinstance(logits, torch.Tensor) or logits.shape[:-1] != labels.shape:
        found_shape = list(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        expected_shape = [*labels.shape, "classes"]
        raise InputError(f"returns {found_shape} where logits {expected_shape} are expected".replace("'", ""))
    return logits


class WithLoss(nn.Module):
    """A network that returns logits, followed by a loss named ``loss``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.loss = Loss()

    @override
    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Map inputs and labels to the loss."""
        logits = _checked_logits(self.network(inputs), labels)
        try:
            loss: torch.Tensor = self.loss(logits, labels)
        except IndexError as error:  # raised on a CPU if a label is too large; a GPU reports such a label differently
            raise InputError(f"the network has {logits.shape[-1]} classes, the data has more: {error}") from error
        return loss


LAYER_TYPES: dict[type[nn.Module], str] = {
    nn.Conv1d: "convolution",
    nn.Conv2d: "convolution",
    nn.Conv3d: "convolution",
    nn.Linear: "fully-connected",
    nn.Embedding: "embedding",
    ClassToken: "embedding",
    Positions: "embedding",
    Attention: "attention",
    RotaryAttention: "attention",
    nn.MultiheadAttention: "attention",
    nn.ReLU: "relu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Softmax: "softmax",
    nn.MaxPool2d: "pooling",
    nn.AvgPool2d: "pooling",
    nn.AdaptiveMaxPool2d: "pooling",
    nn.AdaptiveAvgPool2d: "pooling",
    nn.LocalResponseNorm: "lrn",
    nn.BatchNorm2d: "batch-norm",
    nn.LayerNorm: "layer-norm",
    nn.RMSNorm: "rms-norm",
    nn.Dropout: "dropout",
    nn.Flatten: "flatten",
    Sequence: "flatten",
    FirstToken: "flatten",
    Concat: "concat",
    Add: "add",
    Multiply: "multiply",
    Loss: "loss",
    TotalLoss: "loss",
}


OTHER_TYPE = "other"
"""Type of layers that `LAYER_TYPES` does not know."""


@dataclass(frozen=True)
class Layer:
    """A module with work of its own: a leaf module, or a container that holds parameters itself."""

    name: str
    """Path of the module, e.g. ``inception_3a.conv_1x1.conv``; for the network itself the name of its class."""
    type: str
    """A value of `LAYER_TYPES`, or `OTHER_TYPE`."""
    module: nn.Module
    parameters: list[nn.Parameter]
    """Parameters of the layer, such as weight and bias, or none. Each parameter belongs to one layer."""

    @property
    def gradient_bytes(self) -> int:
        """Return the size of the layer's gradients, bytes; 0 without parameters."""
        return sum(parameter.nbytes for parameter in self.parameters)


def layers(network: nn.Module) -> list[Layer]:
    """Return the layers of `network` in the order of its modules, in which stallpoint's networks run them.

    A module used several times is one layer. A parameter that several modules share belongs to the first. A frozen
    parameter (``requires_grad`` is False) belongs to no layer. Raises `InputError` for a compiled module.
    """
    found: list[Layer] = []
    assigned_ids: set[int] = set()
    for name, module in network.named_modules():
        if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
            raise InputError(
                f"network: {name or type(network).__name__} is compiled (torch.compile or TorchScript), so that its "
                "layers cannot be timed; give the module it was compiled from"
            )
        parameters = list(module.parameters(recurse=False))
        if parameters or next(module.children(), None) is None:
            learned = [one for one in parameters if one.requires_grad and id(one) not in assigned_ids]
            assigned_ids.update(map(id, learned))
            found.append(Layer(name or type(module).__name__, _layer_type(module), module, learned))
    return found


def _layer_type(module: nn.Module) -> str:
    """Return the type of the module's class, or of its nearest base class."""
    return next((LAYER_TYPES[kind] for kind in type(module).__mro__ if kind in LAYER_TYPES), OTHER_TYPE)


def allocated_network(outline: nn.Module) -> nn.Module:
    """Allocate memory for values of the network `outline` (on PyTorch's meta device); shared weights stay shared."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in outline.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    network = outline.to_empty(device="cpu")
    for first, *others in names.values():
        for other in others:
            module, _, attribute = other.rpartition(".")
            setattr(network.get_submodule(module), attribute, network.get_parameter(first))
    return network


def initialise(network: nn.Module, seed: int) -> None:
    """Draw the weights of convolutions, fully-connected layers and embeddings, and set biases to 0.

    The variance of a layer's weights is 1 / n for n inputs (Caffe's "xavier" filler, as in bvlc_googlenet): the loss
    then starts near ln(classes), with and without normalisation. Embeddings have GPT-2's standard deviation
    (openai/gpt-2, src/model.py), unless a fully-connected layer shares the embedding's weights.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="linear", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding | ClassToken | Positions):
            nn.init.normal_(module.weight, std=0.02, generator=generator)
        elif isinstance(module, nn.BatchNorm2d | nn.LayerNorm | nn.RMSNorm):
            module.reset_parameters()
