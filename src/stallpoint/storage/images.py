"""Base of storage formats of images, and decoding."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.storage.samples import Made, SampleSet, SampleShape

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
_PNG_SIGNATURE = b"\x89PNG"
_CHECKED_SIZE = 64

Pixels: TypeAlias = npt.NDArray[np.uint8]


class ImageSet(SampleSet):
    """Labelled images: the label of an image is its class."""

    kind = "images"

    @abstractmethod
    def decode(self, index: int, data: bytes, size: int) -> Pixels:
        """Decode the stored bytes to pixels [3, size, size]; raise `InputError` naming the file of a bad image."""

    @classmethod
    @override
    def synthetic(cls, samples: int, seed: int, shape: SampleShape | None) -> Iterable[Made]:
        """Yield JPEGs and their classes."""
        from stallpoint.storage.synthetic import synthetic_images

        return synthetic_images(samples, seed)

    @override
    def check(self, index: int, data: bytes) -> None:
        """Decode the image; raise `InputError` naming the file of a bad image."""
        self.decode(index, data, _CHECKED_SIZE)


class EncodedImages(ImageSet):
    """Images stored as JPEG or PNG."""

    @override
    def decode(self, index: int, data: bytes, size: int) -> Pixels:
        return decode_image(data, size, self.name(index))


def suffix_of(data: bytes) -> str:
    """Return the file suffix of the encoded image `data`."""
    return ".png" if data.startswith(_PNG_SIGNATURE) else ".jpg"


def decode_image(data: bytes, size: int, name: str) -> Pixels:
    """Decode a JPEG or PNG and resize it to [3, size, size]; raise `InputError` naming an unreadable image.

    The JPEG format offers decoding at several scales; the smallest that is large enough is used.
    """
    from PIL import Image, UnidentifiedImageError  # imported on use, as only decoding needs Pillow

    try:
        with Image.open(io.BytesIO(data)) as image:
            image.draft("RGB", (size, size))
            colour_image = image if image.mode == "RGB" else image.convert("RGB")  # `convert` copies even RGB images
            pixels = np.asarray(colour_image.resize((size, size), Image.Resampling.BILINEAR))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        problem = "its bytes are none" if isinstance(error, UnidentifiedImageError) else error
        raise InputError(f"{name}: not a readable image ({problem})") from error
    return pixels.transpose(2, 0, 1)
