"""Decoding of a stored sample's bytes into a network's input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError
from stallpoint.networks.inputs import Images, Inputs, Tokens
from stallpoint.storage import SampleSet
from stallpoint.storage.images import ImageSet
from stallpoint.storage.tensors import SyntheticTensors
from stallpoint.storage.tokens import TokenSequences

# Mean and standard deviation of ImageNet's channels (red, green, blue) on the scale 0..1.
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
# Weights of red, green and blue in the luminance (ITU-R BT.601).
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
_GREY_SCALE = np.float32(1 / (255 * _DEVIATION.mean()))
_GREY_SHIFT = np.float32(-_MEAN.mean() / _DEVIATION.mean())
_SCALE = (1 / (255 * _DEVIATION))[:, None, None]
_SHIFT = (-_MEAN / _DEVIATION)[:, None, None]


@dataclass(frozen=True)
class Buffers:
    """Memory for the inputs and labels of one mini-batch."""

    inputs: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]


class Decoder(Protocol):
    """Interface of decoders of one storage's samples for one network."""

    def buffers(self, batch: int) -> Buffers:
        """Return buffers for a mini-batch of `batch` samples."""

    def decode(self, index: int, data: bytes, buffers: Buffers, row: int) -> None:
        """Decode `data`, the bytes of sample `index`, into row `row` of `buffers`."""


def decoder(samples: SampleSet, inputs: Inputs) -> Decoder:
    """Return the decoder of a storage's samples to a network's `inputs`; `InputError` if their kinds are different."""
    if isinstance(inputs, Images) and isinstance(samples, ImageSet):
        return ImageDecoder(samples, inputs)
    if isinstance(inputs, Tokens) and isinstance(samples, TokenSequences):
        return TokenDecoder(samples, inputs)
    if isinstance(samples, SyntheticTensors):
        return SyntheticDecoder(inputs)
    raise InputError(f"{samples.path}: holds {samples.kind}, but the network takes {inputs}")


class ImageDecoder:
    """Decoder that resizes and normalises images."""

    def __init__(self, images: ImageSet, takes: Images) -> None:
        self._images, self._size, self._channels = images, takes.size, takes.channels
        if takes.classes and images.classes > takes.classes:
            first = next(index for index in range(images.samples) if images.label(index) >= takes.classes)
            raise InputError(
                f"{images.name(first)}: has label {images.label(first)}, but the network has {takes.classes} classes "
                "(from 0)"
            )

    def buffers(self, batch: int) -> Buffers:
        """Return buffers for images, float32 [b, channels, size, size], and their classes, int64 [b]."""
        return Buffers(np.empty((batch, self._channels, self._size, self._size), np.float32), np.empty(batch, np.int64))

    def decode(self, index: int, data: bytes, buffers: Buffers, row: int) -> None:
        """Decode an image and its class."""
        pixels, decoded = buffers.inputs[row], self._images.decode(index, data, self._size)
        if self._channels == 1:
            np.multiply(np.tensordot(_LUMINANCE, decoded, 1), _GREY_SCALE, out=pixels[0])
            pixels += _GREY_SHIFT
        else:
            np.multiply(decoded, _SCALE, out=pixels)
            pixels += _SHIFT
        buffers.labels[row] = self._images.label(index)


class SyntheticDecoder:
    """Decoder that copies the same random sample for every index."""

    def __init__(self, takes: Inputs) -> None:
        random = np.random.default_rng(0)
        if isinstance(takes, Images):
            self._inputs: npt.NDArray[Any] = random.standard_normal(
                (takes.channels, takes.size, takes.size), np.float32
            )
            self._labels: npt.NDArray[np.int64] = np.zeros((), np.int64)
        else:
            tokens = random.integers(0, takes.vocabulary, takes.length + 1)
            self._inputs, self._labels = tokens[:-1], tokens[1:]

    def buffers(self, batch: int) -> Buffers:
        """Return buffers with the shapes and types of the sample's input and label."""
        inputs, labels = (np.empty((batch, *part.shape), part.dtype) for part in (self._inputs, self._labels))
        return Buffers(inputs, labels)

    def decode(self, index: int, data: bytes, buffers: Buffers, row: int) -> None:
        """Copy the sample, the same for all indices."""
        buffers.inputs[row], buffers.labels[row] = self._inputs, self._labels


class TokenDecoder:
    """Decoder that splits sequences into inputs and labels."""

    def __init__(self, sequences: TokenSequences, takes: Tokens) -> None:
        self._sequences, self._takes = sequences, takes

    def buffers(self, batch: int) -> Buffers:
        """Return buffers for inputs and for labels, each int64 [b, length]."""
        shape = batch, self._takes.length
        return Buffers(np.empty(shape, np.int64), np.empty(shape, np.int64))

    def decode(self, index: int, data: bytes, buffers: Buffers, row: int) -> None:
        """Split a sequence into tokens and their labels, the next tokens."""
        tokens = self._sequences.decode(data, self._takes.length, self._takes.vocabulary)
        buffers.inputs[row], buffers.labels[row] = tokens[:-1], tokens[1:]
