"""Format ``raw``: images decoded once, beforehand, and stored as pixels, so that training decodes nothing.

Caffe-MPI and MXNet convert the training set in this way in Shi et al. (2018), section V.
``images.npy`` is uint8 [samples, 3, height, width], ``labels.npy`` int64 [samples].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.networks.inputs import Images, Inputs
from stallpoint.storage.arrays import array, new_array, write_rows
from stallpoint.storage.images import ImageSet, Pixels, decode_image
from stallpoint.storage.samples import IndexEntry, Made, SampleShape

IMAGES, LABELS = "images.npy", "labels.npy"


@dataclass(frozen=True)
class Squares(SampleShape):
    """Shape of generated images: squares of `image_size` pixels a side."""

    image_size: int = 256
    """Number of rows and of columns; by default enough for inputs of 224 and 227 pixels."""

    @override
    def __str__(self) -> str:
        return f"images of {self.image_size}x{self.image_size} pixels"

    @override
    def suits(self, takes: Inputs) -> bool:
        """Return whether the images are at least as large as the network's inputs."""
        return isinstance(takes, Images) and self.image_size >= takes.size


class RawImages(ImageSet):
    """Pixels of all images in one array file."""

    shape = Squares
    layout = "images.npy, uint8 [samples, 3, height, width], and labels.npy, int64 [samples]"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._shape: tuple[int, ...] = array(path / IMAGES).shape[1:] if self.samples else (3, 0, 0)

    @override
    def check(self, index: int, data: bytes) -> None:
        """Decode all pixels, although a network may take only the central ones."""
        self.decode(index, data, min(self._shape[1:]))

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield the images of the array, one after another."""
        if not (path / IMAGES).exists():
            return
        images, labels = array(path / IMAGES), array(path / LABELS)
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != 3 or len(labels) != len(images):
            raise InputError(f"{path}: not a raw storage; expected {cls.layout}")
        size = int(np.prod(images.shape[1:]))
        for number, label in enumerate(labels):
            yield IndexEntry(IMAGES, images.offset + number * size, size, int(label))

    @override
    def decode(self, index: int, data: bytes, size: int) -> Pixels:
        """Return the central [3, size, size] of the stored pixels, as a view without a copy."""
        height, width = self._shape[1:]
        if size > min(height, width):
            raise InputError(f"{self.path}: images of {height}x{width} pixels are too small for a {size}-pixel input")
        top, left = (height - size) // 2, (width - size) // 2
        pixels: Pixels = np.frombuffer(data, np.uint8).reshape(self._shape)
        return pixels[:, top : top + size, left : left + size]

    @classmethod
    @override
    def stored(cls, data: bytes, name: str, shape: SampleShape | None) -> bytes:
        """Return the pixels of a JPEG or PNG, resized to the shape."""
        assert isinstance(shape, Squares)
        return decode_image(data, shape.image_size, name).tobytes()

    @classmethod
    @override
    def begin(cls, path: Path, samples: int, shape: SampleShape | None) -> None:
        """Create array files of their final sizes."""
        assert isinstance(shape, Squares)
        path.mkdir(parents=True)
        new_array(path / IMAGES, np.uint8, (samples, 3, shape.image_size, shape.image_size))
        new_array(path / LABELS, np.int64, (samples,))

    @classmethod
    @override
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        write_rows(path / IMAGES, first, [data for data, _ in part])
        write_rows(path / LABELS, first, [np.int64(label).tobytes() for _, label in part])
